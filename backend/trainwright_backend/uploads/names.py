"""Names of uploaded files: what people called them, folders included. Never a path on our disk."""

from trainwright_backend.core.errors import Invalid

LONGEST_NAME = 255


def check_file_name(name: str) -> str:
    """``name`` as it is shown, when it can be the name of a file within an upload: `a.jsonl`, `train/a.jsonl`.

    Raises:
        Invalid: what is wrong with it.
    """
    for rule, broken in (
        ("A file needs a name.", not name),
        (f"Names have up to {LONGEST_NAME} characters, folders included.", len(name) > LONGEST_NAME),
        ("Names consist of printable characters.", not name.isprintable()),
        ("Folders are separated by '/': a backslash is refused.", "\\" in name),
        (
            "Names lie within the upload: no part between the '/' may be empty, '.' or '..'.",
            any(part.strip() in ("", ".", "..") for part in name.split("/")),
        ),
    ):
        if broken:
            raise Invalid.at("Upload-Metadata.filename", f"{rule} Rename the file.", name[:120])
    return name
