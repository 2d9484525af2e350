"""How fast replay is, against the other ways to do it: `python -m lib bench`.

Context. One replay task of n packets asks 2n + 2 nearly equal prompts. What sharing their beginnings is worth can be computed; what is
left of it on a machine has to be measured.

How it works. Every contender gets the same token ids and the same weights and continues them greedily. Rounds are interleaved, so that a
busy minute hits all contenders; medians are reported with the least and the most beside them, and every output is compared with that of
one-at-a-time `generate` (module `outputs`). The machine's own matrix-product rate is measured in the same rounds (module `roof`).

- prompts: the replay prompts of one task or several;
- contenders: one at a time, padded batches in given and in sorted order, a shared prefix, this suite's prefix tree;
- engines: llama.cpp and vLLM where they are installed;
- compare: the table; command: its growth in packets and tasks, what is printed and kept; profile: where the tree's own time goes;
- gpu_check: correctness, then timings, on a CUDA device;
- admission: what keeping exact bytes costs a scheduler.

Not covered: several devices, latency under load (lib/bandmas/load.py).
"""
