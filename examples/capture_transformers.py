# SPDX-License-Identifier: Apache-2.0
"""Routing of a Hugging Face transformers model, written as a moe-route-trace.

    recorder = RouteRecorder(model, model.config.num_experts, model.config.num_experts_per_tok)
    model.generate(**tokenizer("def main", return_tensors="pt"), max_new_tokens=64)
    recorder.write("mine.jsonl", "Qwen3-30B-A3B")

Each generate() is a request: batch 1, one beam, cache on, neither speculative decoding nor a
chunked prompt.  The prompt is not recorded.  What cannot be recorded raises ValueError; close()
takes the hooks off.  A router that returns ids is believed.  One that returns logits alone is
taken to choose the largest: it must not be used where groups or a bias decide after it.
"""

import functools
import json
import re

# ...mlp.gate, ...block_sparse_moe.gate, ...mixer.gate, ...feed_forward.router; not ...router.gate
ROUTER = re.compile(r"(?<!\.router)\.(gate|router)$")
LAYER = re.compile(r"\.\d+\.")
BIAS = re.compile(r"correction_bias|expert_bias|balancing_bias")


class RouteRecorder:
    def __init__(self, model, num_experts, top_k, router=ROUTER):
        self.num_experts, self.top_k, self.records = num_experts, top_k, []
        self.request, self.step, self.decoding = -1, 0, False
        modules = dict(model.named_modules())
        self.routers = [name for name in modules if router.search(name)]
        layers = {tuple(LAYER.findall(name)[:1]) for name in self.routers}
        if not layers or len(layers) < len(self.routers):
            found = f"{len(self.routers)} modules in {len(layers)} layers match"
            raise ValueError(f"one router a layer is needed, {found}: give another pattern")
        self.hooks = []
        sizes = {"top_k": top_k, "num_experts": num_experts, "n_routed_experts": num_experts}
        for layer, name in enumerate(self.routers):
            block, gate = modules[name.rpartition(".")[0]], modules[name]
            for key, size in sizes.items():
                if {getattr(module, key, size) for module in (block, gate)} != {size}:
                    raise ValueError(f"{key} of {name} is not {size}")
            biased = any(BIAS.search(key) for key in block.state_dict())
            hook = functools.partial(self._after, layer, biased)
            self.hooks.append(gate.register_forward_hook(hook))
        self.hooks.append(model.register_forward_pre_hook(self._before, with_kwargs=True))

    def _before(self, _model, _args, inputs):
        """Position 0 starts a request: the caches of some models miscount what they hold."""
        positions = inputs.get("position_ids")
        if positions is None or not inputs.get("use_cache", True):
            raise ValueError("call model.generate(), with use_cache=True")
        self.decoding = int(positions.min()) > 0
        if not self.decoding:
            self.request, self.step = self.request + 1, 0
            self._drop_cut_step()
        elif positions.shape[-1] > 1 or self.request < 0:
            raise ValueError("record whole requests, decoded one token a pass, from a fresh cache")

    def _after(self, layer, biased, _router, _inputs, output):
        if not self.decoding:
            return
        name, parts = self.routers[layer], output if isinstance(output, tuple) else (output,)
        rows = [p.reshape(-1, p.shape[-1]) for p in parts if len(getattr(p, "shape", ())) > 1]
        ids = [one for row in rows if isinstance((one := row[0].tolist())[0], int)]
        logits = [row[0] for row in rows if row.shape[-1] == self.num_experts]
        shapes, known = {tuple(row.shape) for row in rows}, {(1, self.num_experts), (1, self.top_k)}
        if shapes - known or not (ids or logits):
            raise ValueError(f"{name} returned {shapes}, expected {known} (batch 1, one beam)")
        if biased and not ids:
            raise ValueError(f"{name} returns logits, and a bias is added to them elsewhere")
        # The tensor's own topk: in bfloat16 equal logits are common, and its order decides.
        chosen = (ids or [row.topk(self.top_k).indices.tolist() for row in logits])[-1]
        if len(set(chosen)) != self.top_k or layer != len(self.records) % len(self.routers):
            expected = f"{self.top_k} different ids, one call a pass, layer after layer"
            raise ValueError(f"{name} chose {chosen}, expected {expected}")
        record = {"req": self.request, "step": self.step, "layer": layer, "experts": chosen}
        self.records.append(record)
        self.step += layer == len(self.routers) - 1

    def _drop_cut_step(self):
        del self.records[len(self.records) // len(self.routers) * len(self.routers) :]

    def close(self):
        for hook in self.hooks:
            hook.remove()

    def write(self, path, model):
        self._drop_cut_step()
        if not self.records:
            raise ValueError("nothing was decoded: generate 2 tokens or more, without use_kernels")
        header = {"format": "moe-route-trace", "version": 1, "model": model, "phase": "decode"}
        header |= {"num_layers": len(self.routers), "num_experts": self.num_experts}
        header |= {"top_k": self.top_k, "source": "transformers"}
        with open(path, "w", encoding="utf-8") as file:
            for line in (header, *self.records):
                file.write(json.dumps(line) + "\n")
