"""Checkpoints are invisible until they are complete, and two valid ones are always retained."""

import hashlib
import io
import tarfile

from tests.backend.conftest import also_in_bucket, both_stores, download
from tests.backend.scripted_agent import Scene, Upload, Work, entry_of
from trainwright.contracts.checkpoint import CheckpointKind, CheckpointManifest


def listed(scene: Scene, work: Work) -> list[tuple[str, int]]:
    found = scene.site.admin.get(f"{scene.runs}/{work.run_id}/checkpoints").json()
    return [(checkpoint["kind"], checkpoint["step"]) for checkpoint in found]


def test_a_checkpoint_is_visible_only_when_committed(scene: Scene) -> None:
    work = scene.running()
    upload = Upload.make(3)
    assert work.commit(upload).json()["code"] == "not_announced"
    assert work.announce(upload).status_code == 200
    assert work.commit(upload).json()["code"] == "checkpoint_incomplete"
    work.put(upload)
    behind = work.commit(upload, events_offset=work.offset + 1)
    assert (behind.status_code, behind.json()["code"]) == (409, "events_behind")
    assert listed(scene, work) == []
    first, again = work.commit(upload, work.offset), work.commit(upload, work.offset)
    assert first.status_code == 200
    assert first.json() == again.json()
    assert listed(scene, work) == [("state", 3)]
    assert work.announce(upload).json()["links"] == [], "the store has all of it"
    assert work.announce(Upload.make(3, salt="other")).json()["code"] == "already_committed"


@also_in_bucket
def test_links_are_given_for_missing_files_and_refuse_other_bytes(scene: Scene) -> None:
    work = scene.running()
    upload = Upload.make(3)
    links = {link["name"]: link["url"] for link in work.announce(upload).json()["links"]}
    assert set(links) == set(upload.files)
    assert scene.agent.client.put(links["part-0.safetensors"], content=b"other bytes").status_code == 422
    wrong = bytes(len(upload.files["part-0.safetensors"]))
    assert scene.agent.client.put(links["part-0.safetensors"], content=wrong).status_code == 422
    assert (
        scene.agent.client.put(links["manifest.json"], content=upload.files["manifest.json"]).status_code
        == 204
    )
    left = {link["name"] for link in work.announce(upload).json()["links"]}
    assert left == {"part-0.safetensors", "part-1.safetensors"}
    changed = Upload.make(3, salt="saved again")
    assert {link["name"] for link in work.announce(changed).json()["links"]} == set(changed.files)


def test_bytes_of_an_earlier_announcement_never_count(scene: Scene) -> None:
    """The step was saved again with equal sizes, and the agent died between the two announcements."""
    work = scene.running()
    first, second = Upload.make(3, salt="one"), Upload.make(3, salt="two")
    late = {link["name"]: link["url"] for link in work.announce(first).json()["links"]}
    work.put(first)
    assert work.announce(second).status_code == 200
    assert {link["name"] for link in work.announce(second).json()["links"]} == set(second.files)
    assert work.commit(second).json()["code"] == "checkpoint_incomplete"
    work.put(second)
    part = "part-0.safetensors"
    assert scene.agent.client.put(late[part], content=first.files[part]).status_code == 204
    assert work.commit(second).status_code == 200
    base = f"{scene.runs}/{work.run_id}/checkpoints"
    [saved] = scene.site.admin.get(base).json()
    files = scene.site.admin.get(f"{base}/{saved['id']}/files").json()
    sent = {file["name"]: scene.agent.client.get(file["url"]).content for file in files}
    assert sent == second.files


def test_a_manifest_must_list_exactly_the_files_that_were_sent(scene: Scene) -> None:
    work = scene.running()
    good = Upload.make(3)
    manifest = CheckpointManifest.model_validate_json(good.files["manifest.json"])
    extra = entry_of("part-0.safetensors", b"other")
    variants = {
        "another step": manifest.model_copy(update={"step": 4}),
        "one file too few": manifest.model_copy(update={"files": manifest.files[:1]}),
        "another digest": manifest.model_copy(update={"files": [extra, *manifest.files[1:]]}),
        "another kind": manifest.model_copy(update={"kind": CheckpointKind.EXPORT}),
    }
    for claim, wrong in variants.items():
        content = wrong.to_bytes()
        digest = hashlib.sha256(content).hexdigest()
        bad = Upload(good.kind, 3, {**good.files, "manifest.json": content}, digest)
        work.put(bad)
        refused = work.commit(bad)
        assert (refused.status_code, refused.json()["code"]) == (409, "checkpoint_incomplete"), claim
    for name in ("../up", "a/b", "", ".hidden"):
        odd = Upload(good.kind, 3, {**good.files, name: b"x"}, good.digest)
        assert work.announce(odd).status_code == 422, name
    assert listed(scene, work) == []


def test_older_checkpoints_are_deleted_but_two_valid_ones_remain(scene: Scene) -> None:
    work = scene.running(last_step=5)
    store = scene.site.app.state.store
    for step in (1, 2, 3):
        work.save(step)
    assert listed(scene, work) == [("state", 3), ("state", 2)]
    scene.control.sweep()
    kept = {
        path.parent.name for path in store.root.rglob("manifest.json") if path.parent.name.startswith("step-")
    }
    assert kept == {"step-2", "step-3"}
    work.ended("checkpoint_invalid", step=3)
    work = scene.again(work.run_id)
    assert work.claim.job.resume is not None
    assert work.claim.job.resume.step == 2
    work.begin(2)
    work.save(4)
    assert listed(scene, work) == [("state", 4), ("state", 3), ("state", 2)], "a damaged one does not count"
    work.save(5)
    assert listed(scene, work) == [("state", 5), ("state", 4)]


def test_uncommitted_checkpoints_are_deleted_with_their_attempt(scene: Scene) -> None:
    work = scene.running()
    upload = Upload.make(3)
    work.put(upload)
    store = scene.site.app.state.store
    assert list(store.root.rglob("step-3/manifest.json"))
    scene.control.sweep()
    assert list(store.root.rglob("step-3/manifest.json")), "its attempt is alive"
    work.ended("crashed")
    scene.control.sweep()
    assert not list(store.root.rglob("step-3/manifest.json"))
    assert work.commit(upload).json()["code"] == "stale_fence"


@both_stores
def test_people_download_files_and_one_archive(scene: Scene) -> None:
    work = scene.start()
    assert work.finish(10) == "succeeded"
    base = f"{scene.runs}/{work.run_id}/checkpoints"
    export = next(c for c in scene.site.admin.get(base).json() if c["kind"] == "export")
    files = scene.site.admin.get(f"{base}/{export['id']}/files").json()
    anonymous = scene.site.anonymous()
    contents = {file["name"]: download(anonymous, file["url"]).content for file in files}
    assert contents == Upload.make(10, "export").files
    assert all(hashlib.sha256(contents[file["name"]]).hexdigest() == file["digest"] for file in files)
    archive = scene.site.admin.get(f"{base}/{export['id']}/archive")
    assert int(archive.headers["content-length"]) == len(archive.content)
    assert archive.headers["content-disposition"] == 'attachment; filename="pilot-step-10.tar"'
    with tarfile.open(fileobj=io.BytesIO(archive.content)) as opened:
        unpacked = {}
        for member in opened.getmembers():
            file = opened.extractfile(member)
            assert file is not None
            unpacked[member.name] = file.read()
    assert unpacked == {f"pilot-step-10/{name}": content for name, content in contents.items()}
    stranger = scene.site.other_team("globex")
    assert stranger.get(f"{base}/{export['id']}/archive").status_code == 404
    assert scene.site.admin.get(f"{base}/ckpt_{'a' * 26}/files").status_code == 404
