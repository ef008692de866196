"""What a next query is chosen by: functions of a surrogate's mean and deviation."""
