"""What people do with runs: tags, notes, forks, pins, saved recipes, drained nodes, hours by day; data that may go

An ended run outlives the data that it was trained on. SQLite cannot change a column's constraint by ALTER TABLE, and a
copied table would take the rows that refer to it along: as its documentation advises for changes that alter no stored
row, the table's own definition is edited.
"""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

FOREIGN_KEY = "fk_run_preparation_id_preparation"


def upgrade() -> None:
    _change_runs()
    _make_tags_and_recipes()
    _count_slot_time()
    op.add_column("checkpoint", sa.Column("pinned", sa.Boolean(), nullable=False, server_default=sa.false()))
    op.add_column("checkpoint", sa.Column("links_until", sa.DateTime(timezone=True), nullable=True))
    op.add_column("checkpoint", sa.Column("holds", sa.JSON(), nullable=True))
    op.add_column("node", sa.Column("draining", sa.Boolean(), nullable=False, server_default=sa.false()))


def _change_runs() -> None:
    op.add_column("run", sa.Column("forked_from_id", sa.Uuid(), nullable=True))
    op.add_column("run", sa.Column("forked_from_name", sa.String(), nullable=True))
    op.add_column("run", sa.Column("forked_checkpoint_id", sa.Uuid(), nullable=True))
    op.add_column("run", sa.Column("forked_step", sa.BigInteger(), nullable=True))
    op.add_column("run", sa.Column("charged_until", sa.DateTime(timezone=True), nullable=True))
    op.add_column("run", sa.Column("notes", sa.String(), nullable=False, server_default=""))
    op.create_index("ix_run_forked_checkpoint_id", "run", ["forked_checkpoint_id"])
    if op.get_bind().dialect.name == "sqlite":
        _edit_definition()
        return
    op.alter_column("run", "preparation_id", nullable=True)
    op.drop_constraint(FOREIGN_KEY, "run", type_="foreignkey")
    op.create_foreign_key(FOREIGN_KEY, "run", "preparation", ["preparation_id"], ["id"], ondelete="SET NULL")


def _edit_definition() -> None:
    connection = op.get_bind()
    definition = connection.execute(
        sa.text("SELECT sql FROM sqlite_schema WHERE type = 'table' AND name = 'run'")
    ).scalar_one()
    edited = _edited(definition)
    version = connection.execute(sa.text("PRAGMA schema_version")).scalar_one()
    connection.execute(sa.text("PRAGMA writable_schema=ON"))
    try:
        connection.execute(
            sa.text("UPDATE sqlite_schema SET sql = :edited WHERE type = 'table' AND name = 'run'"),
            {"edited": edited},
        )
        connection.execute(sa.text(f"PRAGMA schema_version={version + 1}"))
    finally:  # it belongs to the connection and outlives the transaction
        connection.execute(sa.text("PRAGMA writable_schema=RESET"))
    _check_runs(connection)


def _edited(definition: str) -> str:
    edited = definition
    for old, new in (
        ("preparation_id CHAR(32) NOT NULL", "preparation_id CHAR(32)"),
        ("REFERENCES preparation (id) ON DELETE RESTRICT", "REFERENCES preparation (id) ON DELETE SET NULL"),
    ):
        if edited.count(old) != 1:
            raise RuntimeError(
                f"The table of runs is not as the version before made it: {old!r} stands {edited.count(old)} times in its "
                f"definition, not once. Nothing was changed; restore a copy of the data folder. It is: {definition}"
            )
        edited = edited.replace(old, new)
    return edited


def _check_runs(connection: sa.Connection) -> None:
    """Look at the table by its new definition while the transaction can still be undone."""
    damage = connection.execute(sa.text("PRAGMA integrity_check(run)")).scalars().all()
    strays = connection.execute(sa.text("PRAGMA foreign_key_check(run)")).all()
    if damage != ["ok"] or strays:
        found = [*(words for words in damage if words != "ok")]
        found += [f"row {stray[1]} refers to a {stray[2]} that is not there" for stray in strays]
        raise RuntimeError(
            f"The table of runs is damaged: {'; '.join(found[:5])}. Nothing was changed; restore a copy of the data folder."
        )


def _make_tags_and_recipes() -> None:
    op.create_table(
        "run_tag",
        sa.Column("run_id", sa.Uuid(), nullable=False),
        sa.Column("tag", sa.String(length=40), nullable=False),
        sa.Column("team_id", sa.Uuid(), nullable=False),
        sa.ForeignKeyConstraint(
            ["run_id"], ["run.id"], name=op.f("fk_run_tag_run_id_run"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["team_id"], ["team.id"], name=op.f("fk_run_tag_team_id_team"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("run_id", "tag", name=op.f("pk_run_tag")),
    )
    op.create_index("ix_run_tag_team_id_tag_run_id", "run_tag", ["team_id", "tag", "run_id"])
    op.create_table(
        "saved_recipe",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("team_id", sa.Uuid(), nullable=False),
        sa.Column("name", sa.String(length=80), nullable=False),
        sa.Column("spec", sa.JSON(), nullable=False),
        sa.Column("saved", sa.DateTime(timezone=True), nullable=False),
        sa.Column("saved_by_name", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(
            ["team_id"], ["team.id"], name=op.f("fk_saved_recipe_team_id_team"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_saved_recipe")),
        sa.UniqueConstraint("team_id", "name", name=op.f("uq_saved_recipe_team_id_name")),
    )


def _count_slot_time() -> None:
    op.create_table(
        "slot_time",
        sa.Column("run_id", sa.Uuid(), nullable=False),
        sa.Column("day", sa.Date(), nullable=False),
        sa.Column("device", sa.String(length=16), nullable=False),
        sa.Column("team_id", sa.Uuid(), nullable=False),
        sa.Column("slot_seconds", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(
            ["team_id"], ["team.id"], name=op.f("fk_slot_time_team_id_team"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("run_id", "day", name=op.f("pk_slot_time")),
    )
    op.create_index("ix_slot_time_team_id_day", "slot_time", ["team_id", "day"])
