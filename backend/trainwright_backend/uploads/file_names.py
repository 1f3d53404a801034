"""Names of uploaded files, as their owners call them, folders included. They are never paths on the server."""

from trainwright_backend.core.errors import Invalid

MAX_NAME_CHARACTERS = 255


def check_file_name(name: str) -> str:
    """Check the name of a file within an upload, such as `a.jsonl` or `train/a.jsonl`, and return it.

    Raises:
        Invalid: the name breaks a rule, which the message states.
    """
    for rule, broken in (
        ("A file needs a name.", not name),
        (
            f"Names can have up to {MAX_NAME_CHARACTERS} characters, folders included.",
            len(name) > MAX_NAME_CHARACTERS,
        ),
        ("Names consist of printable characters.", not name.isprintable()),
        ("Folders are separated by '/': backslashes are not allowed.", "\\" in name),
        (
            "Names stay within the upload: no part between '/' may be empty, '.' or '..'.",
            any(part.strip() in ("", ".", "..") for part in name.split("/")),
        ),
    ):
        if broken:
            raise Invalid.at("Upload-Metadata.filename", f"{rule} Rename the file.", name[:120])
    return name
