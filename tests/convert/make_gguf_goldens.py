"""Writes tests/convert/goldens/gguf: tiny GGUF files and what an import must convert them to.

NAME.gguf          a model with random weights of few different values, written by gguf-py
*.model            the sentencepiece models of spm.gguf and gemma2.gguf
NAME.tensors.json  type, shape and SHA-256 of its weights under Hugging Face names, after gguf-py's quantization;
                   transformers' own GGUF loader is checked to agree (where it supports the file)
qwen2.safetensors  the weights themselves
expected.json      for each NAME: config values, chat template, special tokens, and ids of texts by the tokenizer that
                   the GGUF was made from (tokenizers, sentencepiece)

Run from the repository root in an environment with gguf, torch, transformers, tokenizers and sentencepiece:
    python tests/convert/make_gguf_goldens.py
"""
import hashlib
import io
import json
import pathlib

import gguf
import numpy as np
import sentencepiece
import torch
import transformers
from gguf import GGMLQuantizationType as T
from gguf_names import INTERLEAVED, OFFSET_NORMS, gguf_name, in_folders
from safetensors.torch import save_file
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

OUT = pathlib.Path(__file__).parent / "goldens" / "gguf"
CORPUS = """The quick brown fox jumps over the lazy dog. Who directed the film The Matrix? It's 1999, isn't it?
MATCH (p:Person {name: "Anna"})-[:DIRECTED]->(f:Film) WHERE f.year > 2010 RETURN f.title LIMIT 12
Return the titles of all films that the person directed after the year 2010; they'll be sorted by name.
In 1999 and 2010 and 2012 and 1912, 12 or 20 of 1999 + 2010 films; 3 of 2010, 4 of 1999, I'LL and WE'LL 12.
Straße, naïve café, 日本語のテキスト, привет мир, the the the and and with without within.
""".splitlines()
TEXTS = ["", " ", "Hello world", "The film of 1999, isn't it?", "  two  spaces\tand\ttabs\n\n\nlines  ", "12345 1 22 333",
         "in 1999 or 2010, film LIMIT 12", "with within the other theory therein",
         "I'LL they'll WE'VE don't", "naïve café Straße", "e\u0301 decomposed", "日本語のテキスト 😀 привет", "a\u00a0b\u2003c",
         "x²½ Ⅷ ٣٤", "<|im_start|>user\nhi<|im_end|>\n", "f(x) = {a: [1, 2]};//c\r\n", "<s> </s> <unk> ▁▁x", "\x00\x01"]
CHATML = ("{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + "
          "'\\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}")
SPLIT = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|%s| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|"
         r"\s+(?!\S)|\s+")


def split_then_bytes(digits):
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(SPLIT % digits), "isolated"),
                                    pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def byte_tokenizer(pre, specials, nfc=False, ignore_merges=False):
    """Merges are learned from words that the plain byte-level step produces, so some merges cross the borders that
    `pre` draws, and one whole word has no merges. The ids therefore depend on the pre-tokenizer and on
    ignore_merges."""
    tok = Tokenizer(models.BPE())
    tok.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tok.train_from_iterator(CORPUS, trainers.BpeTrainer(vocab_size=319, special_tokens=specials, show_progress=False,
                                                        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    parts = json.loads(tok.to_str())
    vocab = parts["model"]["vocab"]
    assert "\u0120LIMIT" not in vocab and len(vocab) == 319
    vocab["\u0120LIMIT"] = len(vocab)
    parts["model"]["ignore_merges"] = ignore_merges
    tok = Tokenizer.from_str(json.dumps(parts))
    if nfc:
        tok.normalizer = normalizers.NFC()
    tok.pre_tokenizer = pre
    tok.decoder = decoders.ByteLevel()
    return tok


def add_byte_tokenizer(writer, tok, pre, user_defined=()):
    tok.add_tokens([AddedToken(t, normalized=False, special=False) for t in user_defined])
    model = json.loads(tok.to_str())
    added = {t["id"]: t for t in model["added_tokens"]}
    texts = [tok.id_to_token(i) for i in range(tok.get_vocab_size())]
    kinds = [(3 if added[i]["special"] else 4) if i in added else 1 for i in range(len(texts))]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(texts)
    writer.add_token_types(kinds)
    writer.add_token_merges([" ".join(m) for m in model["model"]["merges"]])
    return len(texts)


def add_sentencepiece(writer, file, **more):
    blob = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(CORPUS * 3), model_writer=blob, vocab_size=400, model_type="bpe", byte_fallback=True,
        normalization_rule_name="identity", remove_extra_whitespaces=False, hard_vocab_limit=False,
        allow_whitespace_only_pieces=True, minloglevel=2, **more)
    (OUT / file).write_bytes(blob.getvalue())
    sp = sentencepiece.SentencePieceProcessor(model_proto=blob.getvalue())
    ids = range(sp.get_piece_size())
    kinds = [2 if sp.is_unknown(i) else 3 if sp.is_control(i) else 6 if sp.is_byte(i) else 1 for i in ids]
    writer.add_tokenizer_model("llama")
    writer.add_tokenizer_pre("default")
    writer.add_token_list([sp.id_to_piece(i) for i in ids])
    writer.add_token_scores([sp.get_score(i) for i in ids])
    writer.add_token_types(kinds)
    for name in ("bos", "eos", "unk"):
        getattr(writer, f"add_{name}_token_id")(getattr(sp, f"{name}_id")())
    return sp


def interleave(rows, heads):
    """Converts rows to the order of llama.cpp's llama architecture: (2, d/2) within each head becomes (d/2, 2)."""
    return rows.reshape(heads, 2, rows.shape[0] // heads // 2, -1).swapaxes(1, 2).reshape(rows.shape)


def tensors_of(model):
    """For every parameter: its names in folders (one per expert), its name for gguf-py, and its values."""
    kind = model.config.model_type
    for name, parameter in model.named_parameters():
        module, which = name.rsplit(".", 1)
        if not module.endswith("experts"):
            name = in_folders(name, kind)
            yield [name], name, parameter.detach()
            continue
        parts = zip(("gate_proj", "up_proj"), parameter.chunk(2, dim=1)) if which == "gate_up_proj" else [(which, parameter)]
        for part, values in parts:
            names = [in_folders(f"{module}.{e}.{part}.weight", kind) for e in range(len(values))]
            yield names, in_folders(f"{module}.{part}.weight", kind), values.detach()


def coarse(z):
    """Rounds normal numbers to odd multiples of 1/16, so that the goldens have few different values and pack well."""
    return (np.floor(8 * z) + 0.5) / 8


def add_weights(writer, config, kinds, seed):
    """`kinds`: a function from a tensor's name to its GGUF type. Returns the weights that a reader must find."""
    torch.manual_seed(seed)
    model = transformers.AutoModelForCausalLM.from_config(config)
    expected = {}
    for names, name, values in tensors_of(model):
        values = coarse(torch.randn_like(values).numpy()) * np.float32(0.1)
        kind = kinds(name)
        shifted = config.model_type in OFFSET_NORMS and "norm" in name
        if shifted:  # values to which 1 can be added without loss
            values = np.round(values * 1024) / 1024 + 0.0  # no negative zero
        rows = values
        if config.model_type in INTERLEAVED and "q_proj" in name:
            rows = interleave(values, config.num_attention_heads)
        if config.model_type in INTERLEAVED and "k_proj" in name:
            rows = interleave(values, config.num_key_value_heads)
        if shifted:
            rows = values + 1
        if "shared_expert_gate" in name:  # llama.cpp's converter drops dimensions of size 1
            rows = rows[0]
        packed = gguf.quantize(rows, kind)
        writer.add_tensor(gguf_name(name, config.model_type), packed,
                          raw_dtype=kind if kind not in (T.F32, T.F16) else None)
        found = np.array(gguf.dequantize(gguf.quantize(values, kind), kind), dtype=np.float32)
        for one, part in zip(names, found if len(names) > 1 else [found], strict=True):
            expected[one] = torch.from_numpy(np.array(part))
    return expected


def add_config(writer, config):
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    rope = config.rope_parameters
    writer.add_rope_freq_base(rope.get("full_attention", rope)["rope_theta"])
    if config.model_type in ("qwen3", "qwen3_moe", "gemma2", "gemma3_text"):
        writer.add_key_length(config.head_dim)
        writer.add_value_length(config.head_dim)
    if config.model_type == "llama":
        writer.add_rope_dimension_count(config.head_dim)
        writer.add_vocab_size(config.vocab_size)


def save_digests(tensors, name):
    """Writes the type, shape and SHA-256 of each tensor that an import must give."""
    digest = lambda t: hashlib.sha256(t.contiguous().view(torch.uint8).numpy().tobytes()).hexdigest()
    lines = ",\n ".join(f"{json.dumps(n)}: {json.dumps([str(t.dtype)[6:], list(t.shape), digest(t)])}"
                        for n, t in sorted(tensors.items()))
    (OUT / f"{name}.tensors.json").write_text("{" + lines + "}\n")


def finish(writer, path):
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    print(path, path.stat().st_size)


def check_with_transformers(path, expected, state_of):
    try:
        model = transformers.AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=torch.float32)
    except Exception as error:  # its reader supports fewer tokenizers than ours
        print(f"  transformers does not read {path.name}: {error}")
        return
    state = {n: t for names, _, v in tensors_of(model) for n, t in zip(names, v if len(names) > 1 else [v])}
    for name, tensor in expected.items():
        assert torch.equal(state[name], tensor), name
    print(f"  transformers agrees on {state_of}")


def smollm():
    """Llama, grouped queries, tied, quantized in three ways; digits split before GPT-2's regex."""
    path = OUT / "smollm.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    specials = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    tok = byte_tokenizer(pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True),
                                                  pre_tokenizers.ByteLevel(add_prefix_space=False)]), specials)
    vocab = add_byte_tokenizer(writer, tok, "smollm")
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_pad_token_id(2)
    writer.add_add_bos_token(False)
    writer.add_chat_template(CHATML)
    config = transformers.LlamaConfig(vocab_size=vocab, hidden_size=32, intermediate_size=64, num_hidden_layers=1,
                                      num_attention_heads=4, num_key_value_heads=2, head_dim=8, rms_norm_eps=1e-5,
                                      max_position_embeddings=256, rope_theta=100000.0, tie_word_embeddings=True)
    add_config(writer, config)
    kinds = lambda n: T.F32 if "norm" in n else T.Q8_0 if "embed" in n else T.Q4_0 if "down" in n else T.Q4_1
    weights = add_weights(writer, config, kinds, 1)
    finish(writer, path)
    check_with_transformers(path, weights, "smollm")
    save_digests(weights, "smollm")
    return {"config": {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": vocab,
                       "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 4,
                       "num_key_value_heads": 2, "head_dim": 8, "rms_norm_eps": 1e-05, "max_position_embeddings": 256,
                       "rope_theta": 100000.0, "rope_scaling": None, "tie_word_embeddings": True, "bos_token_id": 1,
                       "eos_token_id": 2, "pad_token_id": 2, "torch_dtype": "float32", "attention_bias": False},
            "generation_config": {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 2},
            "tokenizer_config": {"bos_token": "<|im_start|>", "eos_token": "<|im_end|>", "pad_token": "<|im_end|>",
                                 "unk_token": "<|endoftext|>", "chat_template": CHATML, "model_max_length": 256,
                                 "add_bos_token": False, "tokenizer_class": "PreTrainedTokenizerFast"},
            "ids": [[t, tok.encode(t).ids] for t in TEXTS]}


def qwen3():
    """Qwen3 with heads wider than the hidden size, f16 (norms f32 that f16 holds), untied; NFC and single digits."""
    path = OUT / "qwen3.gguf"
    writer = gguf.GGUFWriter(path, "qwen3")
    tok = byte_tokenizer(split_then_bytes(r"\p{N}"), ["<|endoftext|>", "<|im_start|>", "<|im_end|>"], nfc=True)
    vocab = add_byte_tokenizer(writer, tok, "qwen2", user_defined=["<think>", "</think>"])
    writer.add_eos_token_id(2)
    writer.add_eot_token_id(0)
    writer.add_pad_token_id(0)
    writer.add_bos_token_id(0)
    writer.add_add_bos_token(False)
    config = transformers.Qwen3Config(vocab_size=vocab, hidden_size=32, intermediate_size=32, num_hidden_layers=1,
                                      num_attention_heads=4, num_key_value_heads=1, head_dim=16, rms_norm_eps=1e-6,
                                      max_position_embeddings=128, rope_theta=1000000.0, tie_word_embeddings=False)
    add_config(writer, config)
    weights = add_weights(writer, config, lambda n: T.F16, 2)
    finish(writer, path)
    check_with_transformers(path, weights, "qwen3")
    save_digests({k: v.to(torch.float16) for k, v in weights.items()}, "qwen3")
    texts = TEXTS + ["<think>x</think> <think"]
    return {"config": {"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"], "head_dim": 16, "hidden_size": 32,
                       "rope_theta": 1000000.0, "rms_norm_eps": 1e-06, "tie_word_embeddings": False,
                       "attention_bias": False, "torch_dtype": "float16", "sliding_window": None},
            "generation_config": {"bos_token_id": 0, "eos_token_id": [2, 0], "pad_token_id": 0},
            "tokenizer_config": {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>", "add_bos_token": False},
            "ids": [[t, tok.encode(t).ids] for t in texts]}


def qwen2():
    """Qwen2 with biases, bf16, yarn; Llama 3's pre-tokenizer, which adds BOS and keeps whole words from the
    vocabulary."""
    path = OUT / "qwen2.gguf"
    writer = gguf.GGUFWriter(path, "qwen2")
    tok = byte_tokenizer(split_then_bytes(r"\p{N}{1,3}"), ["<|begin_of_text|>", "<|end_of_text|>"], ignore_merges=True)
    tok.post_processor = processors.TemplateProcessing("<|begin_of_text|> $A", special_tokens=[("<|begin_of_text|>", 0)])
    vocab = add_byte_tokenizer(writer, tok, "llama-bpe")
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(1)
    config = transformers.Qwen2Config(vocab_size=vocab, hidden_size=32, intermediate_size=32, num_hidden_layers=1,
                                      num_attention_heads=2, num_key_value_heads=2, rms_norm_eps=1e-6,
                                      max_position_embeddings=128, rope_theta=10000.0, tie_word_embeddings=True)
    add_config(writer, config)
    writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
    writer.add_rope_scaling_factor(4.0)
    writer.add_rope_scaling_orig_ctx_len(32)
    weights = add_weights(writer, config, lambda n: T.BF16, 3)
    finish(writer, path)
    check_with_transformers(path, weights, "qwen2")
    narrow = {k: v.to(torch.bfloat16) for k, v in weights.items()}
    save_digests(narrow, "qwen2")
    save_file(narrow, OUT / "qwen2.safetensors", metadata={"format": "pt"})
    return {"config": {"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], "head_dim": 16,
                       "torch_dtype": "bfloat16", "use_sliding_window": False,
                       "rope_scaling": {"factor": 4.0, "rope_type": "yarn", "original_max_position_embeddings": 32}},
            "generation_config": {"bos_token_id": 0, "eos_token_id": 1},
            "tokenizer_config": {"bos_token": "<|begin_of_text|>", "add_bos_token": True},
            "ids": [[t, tok.encode(t).ids] for t in TEXTS]}


def llama3_divisors(head_dim, theta, factor):
    config = transformers.LlamaConfig(
        hidden_size=head_dim, num_attention_heads=1, head_dim=head_dim, max_position_embeddings=131072,
        rope_parameters={"rope_type": "llama3", "rope_theta": theta, "factor": factor, "low_freq_factor": 1.0,
                         "high_freq_factor": 4.0, "original_max_position_embeddings": 8192})
    scaled, _ = transformers.modeling_rope_utils.ROPE_INIT_FUNCTIONS["llama3"](config, "cpu")
    plain = theta ** -(torch.arange(0, head_dim, 2).float() / head_dim)
    return (plain / scaled).numpy().astype(np.float32)


def spm():
    """Llama with Llama 3.1's rope scaling, f32 and bf16 mixed, untied; a sentencepiece tokenizer with byte fallback."""
    path = OUT / "spm.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    sp = add_sentencepiece(writer, "spm.model")
    config = transformers.LlamaConfig(vocab_size=sp.get_piece_size(), hidden_size=16, intermediate_size=16,
                                      num_hidden_layers=1, num_attention_heads=1, num_key_value_heads=1, head_dim=16,
                                      rms_norm_eps=1e-5, max_position_embeddings=131072, rope_theta=500000.0,
                                      tie_word_embeddings=False)
    add_config(writer, config)
    writer.add_tensor("rope_freqs.weight", llama3_divisors(16, 500000.0, 8.0))
    weights = add_weights(writer, config, lambda n: T.F32 if "mlp.down" in n else T.BF16, 4)
    finish(writer, path)
    save_digests(weights, "spm")
    texts = [t for t in TEXTS if "<" not in t and t]
    return {"config": {"model_type": "llama", "tie_word_embeddings": False, "torch_dtype": "float32",
                       "rope_theta": 500000.0,
                       "rope_scaling": {"factor": 8.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
                                        "original_max_position_embeddings": 8192, "rope_type": "llama3"}},
            "generation_config": {"bos_token_id": 1, "eos_token_id": 2},
            "tokenizer_config": {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "add_bos_token": True},
            "ids": [[t, [sp.bos_id()] + sp.encode(t)] for t in texts]}


def gemma2():
    """Gemma 2: norms of 1 + w, alternating windows, softcaps, heads wider than the hidden size; no space is put before
    the text."""
    path = OUT / "gemma2.gguf"
    writer = gguf.GGUFWriter(path, "gemma2")
    sp = add_sentencepiece(writer, "gemma.model", add_dummy_prefix=False)
    writer.add_add_space_prefix(False)
    writer.add_pad_token_id(0)
    config = transformers.Gemma2Config(vocab_size=sp.get_piece_size(), hidden_size=32, intermediate_size=64,
                                       num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=16,
                                       query_pre_attn_scalar=16, sliding_window=8, rms_norm_eps=1e-6,
                                       max_position_embeddings=128)
    add_config(writer, config)
    writer.add_attn_logit_softcapping(config.attn_logit_softcapping)
    writer.add_final_logit_softcapping(config.final_logit_softcapping)
    writer.add_sliding_window(config.sliding_window)
    weights = add_weights(writer, config, lambda n: T.F32 if "norm" in n else T.F16, 5)
    finish(writer, path)
    check_with_transformers(path, weights, "gemma2")
    save_digests({k: v.to(torch.float16) for k, v in weights.items()}, "gemma2")
    return {"config": {"model_type": "gemma2", "architectures": ["Gemma2ForCausalLM"], "head_dim": 16,
                       "hidden_activation": "gelu_pytorch_tanh", "query_pre_attn_scalar": 16, "sliding_window": 8,
                       "layer_types": ["sliding_attention", "full_attention"], "attn_logit_softcapping": 50.0,
                       "final_logit_softcapping": 30.0, "tie_word_embeddings": True, "torch_dtype": "float16"},
            "generation_config": {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0},
            "tokenizer_config": {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<unk>",
                                 "add_bos_token": True},
            "ids": [[t, [sp.bos_id()] + sp.encode(t)] for t in TEXTS if "<" not in t and t]}


def qwen3moe():
    """Qwen3-MoE: experts in one tensor each, quantized, and a router in f32."""
    path = OUT / "qwen3moe.gguf"
    writer = gguf.GGUFWriter(path, "qwen3moe")
    tok = byte_tokenizer(split_then_bytes(r"\p{N}"), ["<|endoftext|>", "<|im_start|>", "<|im_end|>"], nfc=True)
    vocab = add_byte_tokenizer(writer, tok, "qwen2")
    writer.add_eos_token_id(2)
    writer.add_pad_token_id(0)
    writer.add_bos_token_id(0)
    writer.add_add_bos_token(False)
    config = transformers.Qwen3MoeConfig(vocab_size=vocab, hidden_size=32, intermediate_size=64, num_hidden_layers=2,
                                         num_attention_heads=4, num_key_value_heads=2, head_dim=16, num_experts=3,
                                         num_experts_per_tok=2, moe_intermediate_size=32, norm_topk_prob=True,
                                         max_position_embeddings=128, rope_theta=1000000.0, tie_word_embeddings=True)
    add_config(writer, config)
    writer.add_expert_count(config.num_experts)
    writer.add_expert_used_count(config.num_experts_per_tok)
    writer.add_expert_feed_forward_length(config.moe_intermediate_size)
    kinds = lambda n: T.F32 if "norm" in n or "mlp.gate." in n else T.Q8_0 if "experts" in n else T.F16
    weights = add_weights(writer, config, kinds, 6)
    finish(writer, path)
    check_with_transformers(path, weights, "qwen3moe")
    save_digests(weights, "qwen3moe")
    return {"config": {"model_type": "qwen3_moe", "architectures": ["Qwen3MoeForCausalLM"], "head_dim": 16,
                       "num_experts": 3, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "norm_topk_prob": True,
                       "rope_theta": 1000000.0, "tie_word_embeddings": True, "torch_dtype": "float32"},
            "generation_config": {"bos_token_id": 0, "eos_token_id": 2, "pad_token_id": 0},
            "tokenizer_config": {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>", "add_bos_token": False},
            "ids": [[t, tok.encode(t).ids] for t in TEXTS]}


if __name__ == "__main__":
    OUT.mkdir(parents=True, exist_ok=True)
    expected = {f.__name__: f() for f in (smollm, qwen3, qwen2, spm, gemma2, qwen3moe)}
    import gguf_families  # not at the top, because it needs this module
    expected |= gguf_families.make()
    (OUT / "expected.json").write_text(json.dumps(expected, ensure_ascii=False, indent=1) + "\n")
