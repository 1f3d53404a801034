"""Uploaded tokenizers of a team."""

from trainwright.contracts.api.datasets import NewTokenizer, Tokenizer
from trainwright_backend.api.dependencies import CurrentDatabase, ReadSession, Recorded, Store, WriteSession
from trainwright_backend.auth.policies import Editor, Viewer
from trainwright_backend.core.author import Author
from trainwright_backend.core.policy import GuardedRoute
from trainwright_backend.core.resource_router import ResourceRouter
from trainwright_backend.datasets import tokenizers

router = ResourceRouter(prefix="/teams/{team}/tokenizers", tags=["datasets"], route_class=GuardedRoute)


@router.get("")
def list_tokenizers(access: Viewer, session: ReadSession) -> list[Tokenizer]:
    """The team's uploaded tokenizers, newest first."""
    return tokenizers.list_tokenizers(session, access.team_id)


@router.post("", status_code=201, dependencies=[Recorded])
def create_tokenizer(new: NewTokenizer, access: Editor, database: CurrentDatabase, store: Store) -> Tokenizer:
    """Create a tokenizer from a complete upload of a `tokenizer.json`, if it is valid."""
    return tokenizers.create_tokenizer(
        database, store, access.team_id, Author(access.user_id, access.user_name), new
    )


@router.delete("/{tokenizer}", status_code=204)
def delete_tokenizer(tokenizer: str, access: Editor, session: WriteSession) -> None:
    """Delete a tokenizer; refused until pending preparations have copied it."""
    tokenizers.delete_tokenizer(session, access.team_id, tokenizer)
