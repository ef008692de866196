"""Models of loss and cost, fitted on what was observed; a file each."""
