# SPDX-License-Identifier: Apache-2.0
"""Routing of a Hugging Face transformers model, written as a moe-route-trace.

    recorder = RouteRecorder(model, model.config.num_experts, model.config.num_experts_per_tok)
    model.generate(**tokenizer("def main", return_tensors="pt"), max_new_tokens=64)
    recorder.write("mine.jsonl", "Qwen3-30B-A3B")

Serve one request at a time (batch 1, use_cache=True).  A pass of one token is a decode; a pass of
several is a prompt, which starts the next request and is not recorded: a prompt needs two tokens.
Where a router returns logits alone, the largest must be the choice: models that add a bias to them
afterwards (`e_score_correction_bias`) need the hook on the module that returns the ids.
"""

import functools
import json
import re

# Qwen, OLMoE, DeepSeek: ...mlp.gate; Mixtral: ...block_sparse_moe.gate; gpt-oss: ...mlp.router
ROUTER = re.compile(r"\.(gate|router)$")


class RouteRecorder:
    def __init__(self, model, num_experts, top_k, router=ROUTER):
        self.num_experts, self.top_k = num_experts, top_k
        self.records, self.request, self.step = [], -1, 0
        modules = [module for name, module in model.named_modules() if router.search(name)]
        self.num_layers = len(modules)
        for layer, module in enumerate(modules):
            module.register_forward_hook(functools.partial(self._hook, layer))

    def _hook(self, layer, _module, _inputs, output):
        """Routers return logits, or a tuple of which one part may be the chosen ids."""
        parts = output if isinstance(output, tuple) else (output,)
        passes = [part.reshape(-1, part.shape[-1]).tolist() for part in parts]
        if len(passes[0]) > 1:
            self.request, self.step = self.request + (layer == 0), 0
            return
        rows = [rows[0] for rows in passes]
        logits = next((row for row in rows if len(row) == self.num_experts), None)
        chosen = next((row for row in rows if isinstance(row[0], int)), None)
        if chosen is None:
            chosen = sorted(range(len(logits)), key=logits.__getitem__, reverse=True)[: self.top_k]
        record = {"req": self.request, "step": self.step, "layer": layer, "experts": chosen}
        self.records.append(record)
        self.step += layer == self.num_layers - 1

    def write(self, path, model):
        header = {"format": "moe-route-trace", "version": 1, "model": model, "phase": "decode"}
        header |= {"num_layers": self.num_layers, "num_experts": self.num_experts}
        header |= {"top_k": self.top_k, "source": "transformers"}
        with open(path, "w", encoding="utf-8") as file:
            for line in (header, *self.records):
                file.write(json.dumps(line) + "\n")
