"""What came out of a study, for those who go on with it elsewhere.

Its final model `exported`, with the `card_facts` of a model card; a trial `again`, as a program.
"""
