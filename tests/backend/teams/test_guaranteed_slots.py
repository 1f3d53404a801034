"""Guaranteed shares: setting them, and the order in which runs within them are placed."""

from tests.backend.scheduling.other_team import OtherTeam, set_share
from tests.backend.scripted_agent import Agent, Scene, scene

__all__ = ["scene"]


def test_a_share_is_at_most_the_limit_and_older_clients_keep_it(scene: Scene) -> None:
    path, admin = "/api/v1/teams/acme/quota/cpu", scene.site.admin
    shown = set_share(scene, 2)
    assert (shown["limit"], shown["guaranteed_slots"], shown["warning"]) == (8, 2, None)
    assert admin.put(path, json={"limit": 4}).json()["guaranteed_slots"] == 2, "as an older client asks"
    for body, share in (({"limit": 4, "guaranteed_slots": 5}, 5), ({"limit": 1}, 2)):
        refused = admin.put(path, json=body)
        assert refused.status_code == 422
        [problem] = refused.json()["errors"]
        assert (problem["field"], problem["value"]) == ("guaranteed_slots", share)
        assert "at most its limit" in problem["message"]
    assert admin.put(path, json={"limit": 4, "guaranteed_slots": -1}).status_code == 422
    quota = {entry["device"]: entry for entry in admin.get("/api/v1/teams/acme").json()["quota"]}
    assert (quota["cpu"]["limit"], quota["cpu"]["guaranteed_slots"]) == (4, 2)
    assert quota["cuda"]["guaranteed_slots"] == 0


def test_shares_beyond_the_slots_of_the_nodes_are_allowed_and_said(scene: Scene) -> None:
    OtherTeam(scene, share=2)
    assert set_share(scene, 0)["warning"] is None
    warning = set_share(scene, 1)["warning"]
    assert warning == (
        "The shares of all teams are 3 CPU slots, and the nodes have 2. Not all teams can use their shares at the same time."
    )
    Agent.join(scene.site, "node-b")
    assert set_share(scene, 1)["warning"] is None


def test_a_covered_run_goes_before_a_team_whose_turn_it_would_be(scene: Scene) -> None:
    ours = scene.submit(slots=2)  # first, and neither team has used anything
    other = OtherTeam(scene, share=1)
    theirs = other.submit()
    scene.agent.heartbeat()  # preparing its data may have taken long
    scene.control.sweep()
    assert other.sentence(theirs) == "placed on node-a"
    assert scene.show(ours)["sentence"].startswith("needs 2 slots, 1 free on 1 node")
