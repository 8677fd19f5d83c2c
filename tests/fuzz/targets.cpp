#include "tests/fuzz/targets.h"

#include <zlib.h>

#include <algorithm>
#include <fstream>
#include <iterator>

#include "config/config.h"
#include "config/dataset_card.h"
#include "convert/gguf/import_model.h"
#include "core/error.h"
#include "core/formats/gguf.h"
#include "core/formats/json.h"
#include "core/formats/safetensors.h"
#include "data/row_shapes.h"
#include "data/source/raw_rows.h"
#include "hub/hub_api.h"
#include "hub/name.h"
#include "hub/upload_targets.h"
#include "model/model_config.h"
#include "quant/bnb.h"
#include "quant/fp8.h"
#include "quant/gguf_blocks.h"
#include "tests/core/temp_folder.h"
#include "tests/fuzz/file_targets.h"
#include "tests/fuzz/rank_targets.h"
#include "tests/fuzz/server_targets.h"
#include "text/template/chat_template.h"
#include "text/tokenizer/load.h"
#include "text/tokenizer/sentencepiece.h"
#include "text/tokenizer/tokenizer.h"

namespace qtrain::fuzz {
namespace {

namespace fs = std::filesystem;

/// The bytes as a file with that name, alone in a folder.
class OneFile {
 public:
  OneFile(const char* name, std::string_view bytes) : path_(folder_ / name) {
    std::ofstream(path_, std::ios::binary) << bytes;  // does not wait for the disk
  }
  const fs::path& path() const { return path_; }
  const fs::path& folder() const { return folder_.path(); }

 private:
  testing::TempFolder folder_;
  fs::path path_;
};

void json(std::string_view bytes) {
  const Json value = parse_json(bytes, "fuzz.json");
  check(parse_json(dump_json(value), "again") == value, "JSON does not survive being written and read");
}

void config(std::string_view bytes) {
  resolved_json(parse_config(bytes, "fuzz.json"));
}

void yaml_config(std::string_view bytes) {
  resolved_json(parse_config(bytes, "fuzz.yaml"));
}

void model_config(std::string_view bytes) {
  load_model_config(OneFile("config.json", bytes).path());
}

void safetensors(std::string_view bytes) {
  const OneFile file("model.safetensors", bytes);
  const SafetensorsReader reader(file.path());
  std::uint64_t sum = 0;  // every byte that a tensor claims must exist
  for (const auto& [name, tensor] : reader.tensors())
    sum += crc32(0, reinterpret_cast<const Bytef*>(tensor.data), static_cast<uInt>(tensor.bytes()));
  check(sum < ~std::uint64_t{0}, "never, but so the bytes are read");
}

/// Reads every matrix that claims to be quantized, up to its last value.
void quantized(std::string_view bytes) {
  const OneFile file("model.safetensors", bytes);
  const SafetensorsReader reader(file.path());
  static Ctx ctx({}, MatmulPrecision::storage, 1);
  constexpr std::int64_t kMax = 1 << 20;  // codes take half a byte, so a file in this test has fewer values
  for (const auto& [name, tensor] : reader.tensors()) {
    if (is_fp8(reader, name)) {
      const Fp8Matrix m = read_fp8(reader, name, {.block = {16, 16}});
      std::vector<float> values(static_cast<std::size_t>(m.codes.numel()));
      m.expand(0, view_of(std::span(values), m.codes.shape));
      continue;
    }
    const bool four = has_matrix4(reader, name), eight = !four && has_matrix8(reader, name);
    if (!four && !eight) continue;
    const Matrix4 m4 = four ? read_matrix4(reader, name) : Matrix4{};
    const Matrix8 m8 = eight ? read_matrix8(reader, name) : Matrix8{};
    const Shape shape = four ? m4.state.shape : m8.codes.shape;
    check(shape.numel() <= kMax, "a matrix is larger than its file");
    std::vector<float> values(static_cast<std::size_t>(shape.numel()));
    const Tensor y = view_of(std::span(values), shape);
    if (four) ops::dequantize4(ctx, {.y = y, .w = m4.blocks()});
    if (eight) ops::dequantize_rows8(ctx, {.y = y, .codes = m8.codes, .scale = m8.scale});
  }
}

void quantized_config(std::string_view bytes) {
  const Json json = parse_json(bytes, "fuzz.json");
  if (!fp8_config(json, "fuzz.json"))
    if (const auto config = bnb_config(json, "fuzz.json")) bnb_config_json(*config);
}

/// What an import reads before it writes anything.
void gguf(std::string_view bytes) {
  const OneFile file("model.gguf", bytes);
  const GgufFile reader(file.path());
  std::vector<float> values;
  for (const auto& [name, tensor] : reader.tensors()) {
    if (!can_dequantize(tensor.type)) continue;
    values.resize(static_cast<std::size_t>(tensor.numel()));
    dequantize_gguf(tensor.type, tensor.data, values);
  }
  gguf_tokenizer(reader);
  if (reader.tensors().empty()) return;
  gguf_weights(reader, gguf_model_config(reader, gguf_config(reader)));
  gguf_generation_config(reader);
}

void sentencepiece(std::string_view bytes) {
  const OneFile file("tokenizer.model", bytes);
  check(!read_sentencepiece_model(file.path()).pieces.empty(), "a model without pieces");
}

constexpr std::string_view kText = "Hello  wörld, 12345 <s> \xF0\x9F\x98\x80\n\t<|im_end|>e\xCC\x81 don't";

void tokenizer_file(std::string_view bytes) {
  const OneFile file("tokenizer.json", bytes);
  const auto tokenizer = load_tokenizer(file.folder());
  tokenizer->decode(tokenizer->encode(kText));
}

void tokenizer_text(std::string_view bytes) {
  static const auto tokenizer = load_tokenizer(QTRAIN_SOURCE_DIR "/tests/data/golden/chatml");
  const auto ids = tokenizer->encode(bytes);
  for (const std::int32_t id : ids) check(id >= 0 && id < tokenizer->size(), "an id outside the vocabulary");
  tokenizer->decode(ids);
}

void chat_template(std::string_view bytes) {
  const ChatTemplate parsed(std::string(bytes), "fuzz.jinja", {{"bos_token", "<s>"}, {"eos_token", "</s>"}});
  const Json messages = Json::parse(
      R"([{"role": "system", "content": "a"}, {"role": "user", "content": "b"}, {"role": "assistant", "content": "c"}])");
  parsed.render({.messages = &messages, .add_generation_prompt = true, .now = 0});
}

void dataset_card(std::string_view bytes) {
  for (const std::optional<std::string>& config : {std::optional<std::string>(), std::optional<std::string>("a")})
    if (const auto card = read_dataset_card(bytes, config))
      for (const CardSplit& split : card->splits)
        for (const std::string& path : split.files) check(is_safe_path(path), "a path that leaves the folder");
}

void hub_listing(std::string_view bytes) {
  for (const RepoFile& file : read_listing(bytes, "hub").files)
    check(is_safe_path(file.path) && is_safe_path(file.etag()), "a path that leaves the cache");
}

void upload_targets(std::string_view bytes) {
  UploadPlace place{.hub = {}, .name = {.repo = "o/n"}, .token = {}};
  place.hub.endpoint = "https://hub.example";
  const LargeObject object{.sha256 = std::string(64, 'a'), .size = 25};
  for (const LargeTarget& target : read_targets(json_in(bytes), std::span(&object, 1), place)) {
    check(target.parts.empty() || target.parts.size() == (object.size + target.chunk_size - 1) / target.chunk_size,
          "parts that are not the file");
    for (const std::string& url : target.parts) check(url.starts_with("https://"), "an address that is not safe");
  }
}

void hub_name(std::string_view bytes) {
  for (const RepoKind kind : {RepoKind::model, RepoKind::dataset})
    if (const auto name = parse_hub_name(kind, bytes))
      check(is_repo_id(name->repo) && is_safe_path(name->revision) && (name->file.empty() || is_safe_path(name->file)),
            "a name that leaves the cache");
}

void rows(std::string_view bytes) {
  const OneFile file("rows.jsonl", bytes);
  const RawRows raw({file.path()});
  for (std::int64_t i = 0; i < raw.size(); ++i) read_sample(raw.parse(i), {});
}

/// Reads a file of rows, up to its last value.
void all_rows(const char* name, std::string_view bytes) {
  const OneFile file(name, bytes);
  const RowSourcePtr rows = open_rows(file.path());
  for (std::int64_t i = 0; i < rows->size(); ++i) check(rows->parse(i).is_object(), "a row is not an object");
}

void csv(std::string_view bytes) {
  all_rows("rows.csv", bytes);
}
void arrow(std::string_view bytes) {
  all_rows("rows.arrow", bytes);
}
void parquet(std::string_view bytes) {
  all_rows("rows.parquet", bytes);
}

std::vector<Target> with_files(std::vector<Target> all) {
  std::ranges::move(file_targets(), std::back_inserter(all));
  return all;
}

}  // namespace

const std::vector<Target>& targets() {
  static const std::vector<Target> all = with_files({
      {"json", json, {"tests/data/golden/chatml/tokenizer_config.json"}},
      {"config", config, {"examples/cypher/config.json", "tests/golden/data/curves/llama_lora_all/config.json"}},
      {"yaml_config", yaml_config, {"tests/config/data/recipe.yaml"}},
      {"model_config",
       model_config,
       {"tests/golden/data/rope_llama3/config.json", "tests/golden/data/qwen2_window/config.json"}},
      {"safetensors", safetensors, {"tests/golden/data/lora_qwen3_rs/adapter/adapter_model.safetensors"}},
      {"quantized",
       quantized,
       {"tests/quant/goldens/bnb_model_nf4/model.safetensors", "tests/quant/goldens/fp8_block/model.safetensors"}},
      {"quantized_config",
       quantized_config,
       {"tests/quant/goldens/bnb_model_fp4/config.json", "tests/quant/goldens/fp8_block/config.json",
        "tests/quant/goldens/fp8_row/config.json"}},
      {"gguf",
       gguf,
       {"tests/convert/goldens/gguf/smollm.gguf", "tests/convert/goldens/gguf/spm.gguf",
        "tests/convert/goldens/gguf/gemma2.gguf", "tests/convert/goldens/gguf/qwen3moe.gguf",
        "tests/convert/goldens/gguf_vocab/gpt-2.gguf"}},
      {"sentencepiece", sentencepiece, {"tests/convert/goldens/gguf/spm.model"}},
      {"tokenizer_file", tokenizer_file, {"tests/data/golden/chatml/tokenizer.json"}},
      {"tokenizer_text", tokenizer_text, {"README.md"}},
      {"chat_template", chat_template, {"tests/data/golden/chatml/chat_template.jinja"}},
      {"dataset_card", dataset_card, {"tests/fuzz/data/dataset_card.md"}},
      {"hub_listing", hub_listing, {"tests/fuzz/data/hub_listing.json"}},
      {"upload_targets", upload_targets, {"tests/fuzz/data/upload_targets.json"}},
      {"hub_name", hub_name, {"tests/fuzz/data/hub_name.txt"}},
      {"rows", rows, {"tests/golden/data/curves/llama_lora_all/data.jsonl"}},
      {"csv", csv, {"tests/data/golden/sources/types.csv", "tests/data/golden/sources/quotes.csv"}},
      {"arrow",
       arrow,
       {"tests/data/golden/sources/dictionary.arrow", "tests/data/golden/sources/views.arrow",
        "tests/data/golden/sources/lz4.arrow"}},
      {"parquet",
       parquet,
       {"tests/data/golden/sources/old_lists.parquet", "tests/data/golden/sources/delta.parquet",
        "tests/data/golden/sources/snappy.parquet", "tests/data/golden/sources/gzip_groups.parquet"}},
      {"http_requests", http_requests, {"tests/fuzz/goldens/requests.http", "tests/fuzz/goldens/chunks.http"}},
      {"chat_body", chat_body, {"tests/fuzz/goldens/chat.json"}},
      {"completion_body", completion_body, {"tests/fuzz/goldens/completion.json"}},
      {"tool_calls", tool_calls, {"tests/fuzz/goldens/tool_calls.txt"}},
      {"store_request", store_request, {"tests/fuzz/data/store_request.bin"}},
      {"store_answer", store_answer, {"tests/fuzz/data/store_answer.bin"}},
      {"rank_handshake", rank_handshake, {"tests/fuzz/data/rank_handshake.bin"}},
      {"rank_words", rank_words, {"README.md"}},
  });
  return all;
}

void run(const Target& target, std::string_view bytes) {
  try {
    target.run(bytes);
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::input && e.kind() != ErrorKind::usage) throw;
  }
}

}  // namespace qtrain::fuzz
