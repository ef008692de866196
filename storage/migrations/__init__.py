"""Migrations of the database, by Alembic: older ones are upgraded as they are opened.

`upgrade` makes the tables of a new database and upgrades an older one, in one transaction under a
lock; `running` has Alembic do it. `versions` has one file for each change of the tables.

To add one: change the table in `storage.schema`; raise `SCHEMA` there by one, to N; write
`versions/rN_what_it_does.py`,

    from alembic import op
    revision, down_revision = "N", "N-1"
    def upgrade() -> None:
        op.add_column("trials", Column("loss", Double, nullable=True))

name it in the docstring of `versions`, and pin the tables in the tests, which notice a change of
them without a new number. Add columns and tables rather than drop them, because processes of the
version before may be running: without a column that they use (r3) they fail, and so do programs of
that version that open the store. Keys of documents stay, too (r4); a study that a running process
of that version prepared before the upgrade and begins after it has the older form, and is damaged.
"""
