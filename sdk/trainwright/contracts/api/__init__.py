"""The types of the public HTTP API: the backend writes them, the client reads them.

Routes (all below ``/api/v1``; ``T`` = ``/teams/{team}``; ids are opaque strings; errors are RFC 9457 bodies, `ErrorBody`):

======  ==========================================  ============================================================
POST    /auth/link                                  OneTimeLink → Me; sets the session cookie. First owner,
                                                    invitation or sign-in, as the link's purpose says
GET     /auth/link/{token}                          LinkInfo: what the link is for, before it is used
POST    /auth/mailed-link                           MailedLink → 202: a sign-in link by email, if there is an account
POST    /auth/sign-in                               SignIn → Me; sets the session cookie
POST    /auth/sign-out                              204
GET     /auth/oidc                                  SignInProvider: the identity provider, if there is one
POST    /auth/oidc/start · /auth/oidc/finish        ProviderSignIn → ProviderAddress; ProviderCallback → ProviderSignedIn
POST    /auth/device                                NewDeviceLogin → 201 DeviceLogin: a program asks for a key
POST    /auth/device/key                            DevicePoll → CreatedKey, once approved; 400 until then
GET     /me/device/{user_code} · POST /me/device    DeviceRequest; DeviceDecision → 204
GET PATCH /me                                       Me; ProfileChange: the name
POST    /me/delete                                  AccountDeletion → 204; 409 for a team's last owner
POST    /me/password                                PasswordChange → 204; ends the person's other sessions
GET POST /me/keys · DELETE /me/keys/{key}            API keys (ApiKey; NewKey with scope and lifetime → CreatedKey, the
                                                    secret shown once); DELETE /me/keys/current: the key of the request
GET POST /me/oidc · DELETE /me/oidc/{identity}      LinkedIdentity; IdentityLink → ProviderAddress
GET     /me/sessions · DELETE /me/sessions/{id}     SignedInBrowser: where you are signed in
GET     /me/notices?unread&limit&cursor              NoticePage, newest first
POST    /me/notices/read                            ReadNotices → 204
GET PUT /me/notices/settings                        NoticeSettings; NoticeChoices
GET POST /teams                                     Team (POST: site admin, NewTeam)
GET PATCH T                                         Team with its quota; TeamChange (owners): the name
DELETE  T?confirm                                   204; 409 while runs have not ended (owners)
GET     T/members?limit&cursor                      Page[Member]
PATCH DELETE T/members/{member}                     MemberChange → Member; 204; 409 for the last owner (owners)
DELETE  T/members/me                                204: leaves the team; 409 for the last owner
GET POST T/service-accounts                         list[ServiceAccount]; NewServiceAccount → 201 (owners)
DELETE  T/service-accounts/{account}?runs           204; its runs continue, or are cancelled (owners)
POST    T/service-accounts/{account}/keys           NewKey → 201 CreatedKey; DELETE …/keys/{key} (owners)
GET POST T/invitations · DELETE T/invitations/{id}  Page[PendingInvitation]; NewInvitation → Invitation with its link
PUT     T/quota/{device}                            QuotaLimit (site admin)
PUT     T/storage                                   StorageLimit (site admin)
GET PUT T/limits                                    LimitUse; TeamLimits (site admin)
GET     T/limits/members                            list[MemberLimitUse]
PUT     T/limits/members/{member}                   MemberLimits (owners)
GET POST T/uploads                                  Page[Upload]; POST: tus 1.0 creation (headers, 201 + Location)
HEAD PATCH DELETE T/uploads/{upload}                tus 1.0: offset, more bytes, termination; OPTIONS T/uploads
POST    T/uploads/preview                           PreviewRequest → Preview: formats, columns, first rows
GET POST T/datasets                                 Page[Dataset]; NewDataset (complete uploads; + header Idempotency-Key) → 201 Dataset
GET DELETE T/datasets/{dataset}                     Dataset with versions and preparations
POST    T/datasets/{dataset}/versions               NewVersion (+ header Idempotency-Key) → 201 Dataset
DELETE  T/datasets/{dataset}/versions/{n}           204; 409 names the unfinished runs or mixtures that use it
GET     T/datasets/{dataset}/versions/{n}/documents?cursor&limit   Page[DocumentSample]
GET     T/datasets/{dataset}/versions/{n}/rejected  list[RejectedDocument]
POST    T/datasets/count                            CountRequest → CurationCounts: what a curation would keep
POST    T/datasets/{dataset}/preparations           NewPreparation → 202 Preparation (existing, new or restarted)
POST    T/datasets/{dataset}/preparations/{id}/cancel   Preparation; 409 names the runs that wait for it
GET POST T/tokenizers · DELETE T/tokenizers/{id}    Tokenizer; NewTokenizer (a complete upload) → 201
POST    T/runs                                      RunSpec (+ header Idempotency-Key) → 201 Run
POST    T/runs/validate                             any JSON → SpecCheck: problems by field, or the resolved spec
GET     T/runs?F&ids&sort&order&limit&cursor        Page[Run], newest first by default; F is the filters
                                                    state&q&by&tag&untagged&dataset&model
GET     T/runs/groups?group&F                       Page[RunGroup]: by tag, dataset, model or state
GET     T/runs/export?format&F&sort&order           CSV or Parquet, a row per run
GET POST T/views · DELETE T/views/{view}            Page[SavedView], the caller's own; NewView → 201
GET     T/runs/{run}                                Run
PATCH   T/runs/{run}                                RunEdit → Run: name, tags, notes
DELETE  T/runs/{run}?dry_run                        FreedSpace: deletes an ended run and everything that it made
POST    T/runs/{run}/cancel                         202 Run
POST    T/runs/{run}/pause · …/resume               202 Run; resuming over quota is refused, the run stays paused
PUT     T/runs/{run}/layout                         RunLayout → Run: how its next attempt is distributed over the ranks
POST    T/runs/{run}/clone · …/fork                 NewClone, NewFork (+ header Idempotency-Key) → 201 Run
POST    T/runs/bulk                                 BulkAction → list[BulkResult], in the order of the runs
POST    T/runs/estimate?begin_step                  RunSpec → RunEstimate; `begin_step` is a fork's
POST    T/runs/what-if?gpu&begin_step               RunSpec → WhatIf: its plan on any known GPUs, joined or not
GET POST T/recipes · DELETE T/recipes/{recipe}      Page[Recipe]; NewRecipe → 201
GET     T/runs/{run}/events?after&limit&cursor      Page[RunEvent] by sequence number
GET     T/runs/{run}/events/stream                  SSE, id = sequence number, data = RunEvent
GET     T/runs/{run}/metrics?names&after_step&to_step&points  Metrics; without `names` all series; `points`
                                                    down-samples the window after_step < step ≤ to_step
GET     T/metrics?runs&names&after_step&to_step&points  list[RunSeries] of up to a hundred runs
GET     T/runs/{run}/metrics/stream                 SSE, id = `attempt:offset`: event `points` data MetricPoints,
                                                    event `rewind` data {"step": s}: discard points after s
GET     T/runs/{run}/samples?limit&cursor           Page[RunSamples]: generated text, newest step first
GET     T/runs/{run}/logs                           list[LogFile]
GET     T/runs/{run}/logs/{attempt}/{file}?offset&limit   LogText
GET     T/runs/{run}/logs/{attempt}/{file}/lines?first&limit   LogLines by line number
GET     T/runs/{run}/logs/{attempt}/{file}/search?q&after_line&limit   LogMatches
GET     T/runs/{run}/checkpoints?limit&cursor       Page[Checkpoint]
GET     T/runs/{run}/checkpoints/{id}/files         list[CheckpointFile] with signed links
GET     T/runs/{run}/checkpoints/{id}/archive       one streamed .tar
PATCH   T/runs/{run}/checkpoints/{id}               CheckpointEdit → Checkpoint: pin and unpin
DELETE  T/runs/{run}/checkpoints/{id}?dry_run       FreedSpace; 409 says why it cannot be deleted
GET     T/checkpoints?kind&pinned&order&limit&cursor   Page[Checkpoint] of all the team's runs, newest first or
                                                    run by run
POST    T/checkpoints/retention                     Retention → RetentionResult
GET     T/usage?days                                Usage
GET     T/usage/members?days                        list[DailyMemberUsage]
GET     T/usage/runs?days                           list[DailyRunUsage]
GET POST T/webhooks · DELETE T/webhooks/{webhook}   list[Webhook]; NewWebhook → CreatedWebhook, its secret shown once (owners)
POST    T/webhooks/{webhook}/test                   202 WebhookDelivery
GET     T/audit?q&limit&cursor                      Page[AuditEntry], newest first (owners); T/audit/export: JSON lines
GET     /audit?q&limit&cursor                       Page[AuditEntry] of changes outside of teams (site admins)
GET     /spec                                       SpecInfo: JSON Schema of RunSpec and the presets
GET     /series                                     SeriesRegistry: title, unit and group of each series
GET     /nodes · DELETE /nodes/{node}               Node (site admin; the list without tokens)
GET     /nodes/{node}/load?hours                    NodeLoad of the last hours, at most 24 (site admin)
PATCH   /nodes/{node}                               NodeEdit → Node: drain or empty it, quarantine it, allow it slots
POST    /join-tokens                                NewJoinToken → JoinToken (site admin)
GET PUT /blobs/{signed}                             bytes
GET     /health                                     Health
======  ==========================================  ============================================================
"""
