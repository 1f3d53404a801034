"""Names of uploaded files. They are never paths on the server."""

from trainwright.contracts.file_names import broken_upload_rule
from trainwright_backend.core.errors import Invalid


def check_file_name(name: str) -> str:
    """Check the name of a file within an upload, such as `a.jsonl` or `train/a.jsonl`, and return it.

    Raises:
        Invalid: the name breaks a rule, which the message states.
    """
    rule = broken_upload_rule(name)
    if rule is not None:
        raise Invalid.at("Upload-Metadata.filename", f"{rule} Rename the file.", name[:120])
    return name
