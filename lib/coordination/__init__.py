"""When a message helps: receiver-relative bounded coordination (*Bayes-Sufficient Compression Is Not Enough*).

A message is worth what it gains a bounded receiver, minus the tax that the protocol puts on this receiver. Theory comes
first here: every statement is a function on finite laws, small enough to be checked by running.

Modules are imported by name, in this order of reading: `laws` and `decoders` (what is random, who reads), `gain` (one
step), `compression` and `alternation` (message against raw context), `bottleneck` and `outcomes` (where loss remains),
`crossing` (stronger senders), `propagation` (many steps), `protocol` (choosing), `ideal_cases`; `examples`, `burden` and
`random_laws` make the laws that are looked at.

Real receivers: `exchange` (what is recorded), `payload` and `budget` (what is sent), `prompts`, `sending` and `arms` (who is
asked), `parse` and `scoring` (what was decided, and whether rightly), `recode` and `closure` (where it fails), `keys` (which
rows may be compared).

Choosing a protocol: `survey` and `probes` (what is known before), `actions` and `selector` (skip, compress, raw, escalate,
refresh), `controller` (the threshold rule), `action_outcomes`, `calibration` and `references` (what it is judged by). Stronger
senders: `anchors`, `crossing_fits`, `sender_gap`. Shared state: `shared_state`, `propagation_fit`. The paper's numbers: `published`.
"""
