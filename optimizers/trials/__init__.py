"""What was observed: trials, their history, and the losses that models are fitted on."""
