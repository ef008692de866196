"""The commands of `prefect-tune`, a file a group; they import what they need when they run."""
