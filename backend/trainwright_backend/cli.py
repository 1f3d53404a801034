"""The operator's command line: ``trainwright-server``. Settings come from the environment (see `core/settings.py`)."""

import fcntl
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
import uvicorn
from pydantic import ValidationError

from trainwright.contracts.api.nodes import NewJoinToken
from trainwright.contracts.base import problems
from trainwright.version import Version
from trainwright_backend.auth import audit
from trainwright_backend.auth.oidc import redirect_uri
from trainwright_backend.core.broker import BrokerError
from trainwright_backend.core.db import Database, open_database
from trainwright_backend.core.errors import AppError
from trainwright_backend.core.http_protocol import raise_file_limit
from trainwright_backend.core.open_store import open_store
from trainwright_backend.core.settings import (
    ENVIRONMENT_PREFIX,
    Settings,
    describe_problems,
    settings_from,
)
from trainwright_backend.local.data_folder import (
    SECRETS_FILE,
    DataFolder,
    FolderInUseError,
    PlatformError,
    folder_settings,
    server_variables,
    write_private_file,
)
from trainwright_backend.local.up import run_until_interrupted
from trainwright_backend.maintenance.backup import (
    BackupError,
    create_backup,
    open_place,
    read_secrets,
    restore_backup,
    verify_backup,
)
from trainwright_backend.maintenance.create_bucket import BucketRefusedError, create_bucket
from trainwright_backend.maintenance.env_file import EnvFileError, write_env_file
from trainwright_backend.maintenance.move_objects import NoBucketError, Place, move_objects
from trainwright_backend.maintenance.support_bundle import Configuration, write_support_bundle
from trainwright_backend.migrations.run import is_from_newer_version, is_migrated
from trainwright_backend.migrations.run import migrate as migrate_database
from trainwright_backend.nodes.service import create_join_token, online_name_warning
from trainwright_backend.teams import one_time_links
from trainwright_backend.worker import run_worker

GRACEFUL_SECONDS = 3
"""Live streams do not end by themselves."""

SERVER_OPTIONS: dict[str, Any] = {
    "http": "trainwright_backend.core.http_protocol:HttpProtocol",
    "log_config": None,
    "access_log": False,
    "server_header": False,
    "timeout_graceful_shutdown": GRACEFUL_SECONDS,
}

UP_FOLDER = Path(".trainwright/main")
"""The default data folder of `up`."""

UpFolder = Annotated[
    Path | None,
    typer.Option(
        "--data",
        help=f"Data folder of a platform that `up` started. The default is {UP_FOLDER} unless TRAINWRIGHT_SECRET_KEY is set.",
        show_default=False,
    ),
]

BACKUP_PLACE = "Folder of the backup, or s3://bucket/folder in the store of the TRAINWRIGHT_S3 settings."

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False)
objects_app = typer.Typer(
    no_args_is_help=True, help="The objects: uploaded files, shards, checkpoints, exports."
)
link_app = typer.Typer(no_args_is_help=True, help="Print one-time links.")
app.add_typer(link_app, name="link")
audit_app = typer.Typer(no_args_is_help=True, help="Check the audit log.")
app.add_typer(audit_app, name="audit")
app.add_typer(objects_app, name="objects")


@app.callback()
def main(version: Version = False) -> None:
    """Run a Trainwright server."""


@app.command()
def serve(
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on.")] = 8000,
    reload: Annotated[bool, typer.Option(help="Restart when the sources change.")] = False,
    fd: Annotated[int | None, typer.Option(help="Inherited listening socket.")] = None,
) -> None:
    """Serve the API, the pages and the control loop."""
    with _database(_settings()) as database:  # checks that its tables are of this version
        pass
    raise_file_limit()
    application = "trainwright_backend.main:app_from_environment"
    with _only_server_of(database):
        if fd is None:
            uvicorn.run(application, factory=True, host=host, port=port, reload=reload, **SERVER_OPTIONS)
        else:
            config = uvicorn.Config(application, factory=True, **SERVER_OPTIONS)
            uvicorn.Server(config).run([socket.socket(fileno=fd)])


@app.command()
def up(
    data: Annotated[Path, typer.Option(help="Data folder, created if it is missing.")] = UP_FOLDER,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on.")] = 8000,
    cpu_slots: Annotated[
        int, typer.Option(min=0, help="Ranks that can run on this machine's CPU at once.")
    ] = 2,
    reload: Annotated[bool, typer.Option(help="Restart the API when the sources change.")] = False,
) -> None:
    """Run the entire platform on this machine: broker, API, worker and one node agent."""
    try:
        run_until_interrupted(data, host, port, cpu_slots, reload)
    except (FolderInUseError, PlatformError, BrokerError) as error:
        _refuse(str(error))


@app.command()
def worker() -> None:
    """Run a worker for the queue `tasks`, which prepares datasets."""
    settings = _settings()
    with _database(settings):
        pass
    try:
        run_worker(settings)
    except ValueError as error:
        _refuse(str(error))


@app.command()
def init(
    public_url: Annotated[
        str,
        typer.Option(
            help="Address at which users and nodes open the platform, such as https://train.example.org."
        ),
    ],
    file: Annotated[Path, typer.Argument(help="File to write; it must not exist.")] = Path(".env"),
    hints_host: Annotated[
        str | None,
        typer.Option(
            help="Host name at which nodes reach the broker of hints. The default is that of the address."
        ),
    ] = None,
) -> None:
    """Write the file .env of docker-compose.yml, with new random secrets.

    Settings of the identity provider in the environment (TRAINWRIGHT_OIDC_…) are checked, and written to the file too."""
    try:
        write_env_file(file, public_url, hints_host, os.environ)
    except EnvFileError as error:
        _refuse(str(error))
    typer.echo(
        f"{file} is written. Keep a copy: without its secrets a backup is useless. Next: docker compose up --detach"
    )


@app.command()
def migrate() -> None:
    """Upgrade the database to this version's tables."""
    settings = _settings()
    with _opened(settings) as database:
        _refuse_newer_tables(database)
        migrate_database(database)


@link_app.command("first-owner")
def first_owner_link(data: UpFolder = None) -> None:
    """Print a link that creates the first account, a site admin. It is valid for a day."""
    settings = _settings_of(data)
    with _database(settings) as database:
        typer.echo(database.retry_write(partial(one_time_links.first_owner_link, settings=settings)).url)


@link_app.command("sign-in")
def sign_in_link(email: str, data: UpFolder = None) -> None:
    """Print a link that signs a user in and confirms their address, and can set a new password. It is valid for 15 minutes."""
    settings = _settings_of(data)
    make_link = partial(one_time_links.sign_in_link, settings=settings, email=email)
    with _database(settings) as database:
        typer.echo(database.retry_write(make_link).url)


@app.command("join-token")
def join_token(
    name: str,
    data: UpFolder = None,
    any_slots: Annotated[
        bool, typer.Option("--any-slots", help="Let the node have more slots later than when it joins.")
    ] = False,
) -> None:
    """Print a token with which the node of this name can join once."""
    try:
        request = NewJoinToken(name=name)
    except ValidationError as error:
        _refuse("\n".join(problem.message for problem in problems(error, NewJoinToken)))
    settings = _settings_of(data)
    make_token = partial(create_join_token, settings=settings, name=request.name, any_slots=any_slots)
    with _database(settings) as database:
        with database.read() as session:
            warning = online_name_warning(session, request.name, settings.timers)
        created = database.retry_write(make_token)
    if warning is not None:
        typer.echo(warning, err=True)
    typer.echo(created.token)


@objects_app.command("move")
def move(
    to: Annotated[Place, typer.Argument(help="Destination of the objects. The other place is the source.")],
    data: UpFolder = None,
    remove: Annotated[
        bool, typer.Option("--remove", help="Delete the objects at the source after all have been copied.")
    ] = False,
) -> None:
    """Copy all objects from the local folder to the bucket of TRAINWRIGHT_OBJECT_STORE_URL, or back, and verify each.

    Objects that were copied before are skipped, so the command can be repeated after an interruption, and once more after
    the servers have been stopped."""
    try:
        with _reported():
            moved = move_objects(_settings_of(data, bucket=True), to, remove=remove, tell=_show_count)
    except NoBucketError as error:
        _refuse(str(error))
    done = moved.transfer
    typer.echo(
        f"{done.copied} objects copied ({done.copied_bytes:,} bytes), {done.present} were there already."
    )
    if moved.unfinished_uploads:
        typer.echo(
            f"{moved.unfinished_uploads} unfinished uploads were not copied: their users must send the files again."
        )


@objects_app.command("create-bucket")
def create_objects_bucket() -> None:
    """Create the bucket of TRAINWRIGHT_OBJECT_STORE_URL, unless it exists."""
    settings = _settings()
    try:
        created = create_bucket(settings)
    except (NoBucketError, BucketRefusedError) as error:
        _refuse(str(error))
    typer.echo(f"{settings.object_store_url}: {'created' if created else 'exists'}")


@app.command("check-settings")
def check_settings(data: UpFolder = None) -> None:
    """Show the configuration, and what is wrong with it."""
    settings = _server_configuration(data).settings
    none = "none: {}" if _in_environment(data) else "up's own, while it runs"
    shown = {
        "database": settings.resolved_database_url.split("://")[0],
        "objects": settings.object_store_url or settings.resolved_object_store_dir,
        "public address": settings.public_url,
        "hosts": ", ".join(sorted(settings.all_hosts)),
        "hints broker": "set" if settings.hints_url else none.format("agents learn of runs from heartbeats"),
        "tasks broker": "set" if settings.tasks_url else none.format("datasets are not prepared"),
        "metrics": "set: /metrics answers to the token"
        if settings.metrics_token
        else "no token: nobody can read /metrics",
        "sign-in": f"password, or {settings.oidc_label}; register {redirect_uri(settings)} there"
        if settings.oidc_issuer
        else "password",
        "mail": "set" if settings.smtp_url else "none: users get sign-in links from the operator",
    }
    for name, value in shown.items():
        typer.echo(f"{name:16} {value}")
    if not settings.https:
        typer.echo("warning: the public address is plain http: passwords and sessions can be intercepted")


@audit_app.command("verify")
def verify_audit(data: UpFolder = None) -> None:
    """Check that no entry of the audit log was changed, inserted or removed, and print the last entry of each chain.

    Record these entries elsewhere: if one is missing later, the end of its chain was cut off."""
    settings = _settings_of(data)
    with _database(settings) as database, database.read() as session:
        broken = audit.verify(session, settings.secret_key)
        names = audit.chain_names(session)
        typer.echo(_audit_line("log of", "entries", "hash of the last one"))
        for head in audit.list_heads(session):
            typer.echo(_audit_line(names[head.chain], f"{head.sequence:,}", head.hash))
    if broken:
        _refuse(
            "\n".join(
                f"The log of {names[item.chain]} is broken at entry {item.sequence}." for item in broken
            )
        )
    typer.echo("the audit log is intact")


def _audit_line(name: str, entries: str, last_hash: str) -> str:
    return f"{name:60} {entries:>10}  {last_hash}"


@contextmanager
def _database(settings: Settings) -> Iterator[Database]:
    """Open the database, and check that its tables are of this version."""
    with _opened(settings) as database:
        _refuse_newer_tables(database)
        if database.is_missing or not is_migrated(database):
            _refuse(
                "The database does not have this version's tables. Run `trainwright-server migrate` first."
            )
        yield database


def _refuse_newer_tables(database: Database) -> None:
    """Exit if a newer version has migrated the database."""
    if database.is_missing or not is_from_newer_version(database):
        return
    _refuse(
        "A newer version of Trainwright has migrated this database. Install that version or a newer one, or restore a "
        "backup from before the upgrade."
    )


@contextmanager
def _only_server_of(database: Database) -> Iterator[None]:
    """Lock an embedded database: a second server would clear the first one's unfinished uploads."""
    if not database.is_sqlite:
        yield
        return
    path = database.file
    with Path(f"{path}.lock").open("wb") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _refuse(
                f"Another server uses the database {path}. Stop it first, or use PostgreSQL "
                "(TRAINWRIGHT_DATABASE_URL), which several servers can share."
            )
        yield


@contextmanager
def _opened(settings: Settings) -> Iterator[Database]:
    database = open_database(settings, {})
    try:
        yield database
    except AppError as error:
        _refuse(error.detail)
    finally:
        database.dispose()


@app.command()
def backup(
    target: Annotated[str, typer.Argument(help=BACKUP_PLACE)],
    data: UpFolder = None,
) -> None:
    """Back up database and objects while the platform works. Repeated to the same place, it copies what is new."""
    settings = _settings_of(data)
    secrets = None if _in_environment(data) else (settings.data_dir / SECRETS_FILE).read_bytes()
    with _database(settings) as database, _reported():
        place = open_place(settings, target, create=True)
        create_backup(database, open_store(settings), place, settings.secret_key, _tell, secrets)


@app.command()
def restore(
    source: Annotated[str, typer.Argument(help=BACKUP_PLACE)],
    data: Annotated[
        Path | None, typer.Option("--data", help="New data folder for `up`, with the backup's secret key.")
    ] = None,
) -> None:
    """Restore a backup into an empty database and an empty object store, and verify all of it. No server may run."""
    with _reported():
        if data is not None:
            folder = DataFolder.acquire(data)
            if not (folder.path / SECRETS_FILE).exists():
                write_private_file(folder.path / SECRETS_FILE, read_secrets(open_place(None, source)))
        settings = _settings() if data is None else _settings_of(data)
        with _opened(settings) as database:
            place = open_place(settings, source)
            restore_backup(place, database, open_store(settings), settings.secret_key, _tell)


@app.command()
def verify(source: Annotated[str, typer.Argument(help=BACKUP_PLACE)]) -> None:
    """Read an entire backup, and name what is missing or damaged."""
    with _reported():
        problems = list(verify_backup(open_place(None, source)))
    if problems:
        _refuse("\n".join(problems))
    typer.echo("The backup is complete and undamaged.")


@app.command("support-bundle")
def support_bundle(
    file: Annotated[
        Path | None,
        typer.Argument(help="File to write. The default has the time in its name.", show_default=False),
    ] = None,
    data: UpFolder = None,
    lines: Annotated[int, typer.Option(min=1, help="Lines of the end of each log.")] = 2_000,
    log: Annotated[
        list[Path] | None,
        typer.Option(
            help="A log besides those in the data folder, such as journalctl's output. Can be repeated."
        ),
    ] = None,
) -> None:
    """Collect what is needed to find a problem in one file, without secrets: version, settings, state, nodes, ends of logs."""
    configuration = _server_configuration(data)
    for missing in (each for each in log or () if not each.is_file()):
        _refuse(f"--log {missing}: there is no such file.")
    target = file or Path(f"trainwright-support-{datetime.now(UTC):%Y%m%d-%H%M%S}.tar.gz")
    database = Database(configuration.settings.resolved_database_url)
    try:
        write_support_bundle(configuration, database, target, lines, log or ())
    except OSError as error:
        _refuse(f"{target}: {error.strerror}")
    finally:
        database.dispose()
    typer.echo(f"{target} is written. Secrets are masked; look at it before you send it.")


@contextmanager
def _reported() -> Iterator[None]:
    """Report what prevents a command as a sentence."""
    try:
        yield
    except AppError as error:
        _refuse(error.detail)
    except (BackupError, FolderInUseError) as error:
        _refuse(str(error))


def _tell(message: str) -> None:
    typer.echo(message, err=True)


def _show_count(done: int) -> None:
    if done % 100 == 0:
        typer.echo(f"{done} objects", err=True)


def _settings_of(data: Path | None, *, bucket: bool = False) -> Settings:
    """The settings of the platform in folder ``data``; else those of the environment; else of `up`'s own folder.

    With ``bucket``, a folder's settings have the environment's bucket too, which `up` does not use.
    """
    if _in_environment(data):
        return _settings()
    folder = _folder(data)
    try:
        given = folder_settings(folder)
    except PlatformError as error:
        _refuse(
            f"{error}. Name the folder that you gave to `trainwright-server up` with --data. A server that was started "
            "by `serve` has its settings in the environment: run this with the same TRAINWRIGHT_SECRET_KEY."
        )
    if bucket:
        given.pop("object_store_url")
    return _settings(**given)


def _server_configuration(data: Path | None) -> Configuration:
    """The settings of the server itself: a shell in which a command runs need not have the variables that `up` was given."""
    folder = _folder(data)
    variables = None if _in_environment(data) else server_variables(folder)
    if variables is not None:
        origin = f"the server that `trainwright-server up` started last in {folder.absolute()}"
        return Configuration(_valid(lambda: settings_from(variables)), variables, origin)
    origin = "the environment of this command; the server has these if it was started with the same variables"
    return Configuration(_settings_of(data), os.environ, origin)


def _folder(data: Path | None) -> Path:
    return data or Path(os.environ.get(f"{ENVIRONMENT_PREFIX}DATA_DIR", UP_FOLDER))


def _in_environment(data: Path | None) -> bool:
    return data is None and f"{ENVIRONMENT_PREFIX}SECRET_KEY" in os.environ


def _settings(**given: Any) -> Settings:
    """The settings ``given``, and those of the environment."""
    return _valid(lambda: Settings(**given))


def _valid(read: Callable[[], Settings]) -> Settings:
    """The settings that ``read`` returns, if they are valid."""
    try:
        return read()
    except ValidationError as error:
        _refuse(describe_problems(error))


def _refuse(message: str) -> NoReturn:
    typer.echo(message, err=True)
    raise typer.Exit(1)


if __name__ == "__main__":
    app()
