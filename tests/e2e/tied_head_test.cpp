// If config and files disagree about whether head and embedding are tied, the files decide, as in transformers 5.
#include "core/formats/safetensors.h"
#include "core/os/file.h"
#include "tests/e2e/support.h"

namespace qtrain::e2e {
namespace {

const fs::path kTied = kGoldens / "llama_gqa3_tied", kLora = kGoldens / "lora_llama_all/adapter";
constexpr const char *kEmbedding = "model.embed_tokens.weight", *kHead = "lm_head.weight";

/// Which of the two weights a model folder contains, and whether its config ties them.
struct HeadFiles {
  enum class Head { none, same, other };
  bool tied = true, embedding = true;
  Head head = Head::none;
};

void write_model(const fs::path& to, const HeadFiles& files) {
  fs::create_directories(to);
  Json config = read_json(kTied / "config.json");
  config["tie_word_embeddings"] = files.tied;
  write_file(to / "config.json", dump_json(config, 2));
  write_letter_tokenizer(to, config.at("vocab_size"));
  const SafetensorsReader reader(kTied);
  NamedTensors tensors;
  for (const auto& [name, tensor] : reader.tensors())
    if (name != kEmbedding || files.embedding) tensors.emplace_back(name, tensor);
  const ConstTensor table = reader.at(kEmbedding);
  std::vector<float> head(table.as<float>(), table.as<float>() + table.numel());
  if (files.head == HeadFiles::Head::other) std::reverse(head.begin(), head.end());
  if (files.head != HeadFiles::Head::none)
    tensors.emplace_back(kHead, view_of(std::span<const float>(head), table.shape));
  write_safetensors(to / "model.safetensors", tensors);
}

/// Results of the commands that read models, and their remarks about the head.
struct Results {
  std::map<std::string, std::string> bytes;
  std::map<std::string, bool> warned;
};

Results results_of(const fs::path& folder) {
  const fs::path model = folder / "model";
  Results r;
  const auto said = [&](const char* command, const Outcome& outcome) {
    r.warned[command] = outcome.err.find("the two are not tied") != std::string::npos;
    return outcome.out;
  };
  const auto generate = [](const fs::path& from) {
    return Call{.words = {"generate", "--model", from, "--raw", "--greedy", "--prompt", letters({5, 6, 7}),
                          "--max_new_tokens", "8"}};
  };
  r.bytes["generate"] = said("generate", qtrain_ok(generate(model)));
  Json run = tiny_run(folder / "trained");
  run.update({{"model_name_or_path", model.string()}, {"max_steps", 2}});
  said("train", train_ok(folder, run));
  r.bytes["train"] = bytes_of(folder / "trained/model.safetensors");
  said("merge", qtrain_ok({.words = {"merge", "--model", model, "--adapter", kLora, "--output", folder / "merged"}}));
  r.bytes["merge"] = bytes_of(folder / "merged/model.safetensors");
  said("quantize", qtrain_ok({.words = {"quantize", "--model", model, "--output", folder / "quantized"}}));
  r.bytes["quantize"] = qtrain_ok(generate(folder / "quantized")).out;
  return r;
}

TEST(TiedHead, IsWhatTheFilesHold) {
  struct Case {
    const char* name;
    HeadFiles files, meant;
    bool warns;
  };
  using Head = HeadFiles::Head;
  const Case cases[] = {{"a head of its own", {.head = Head::other}, {.tied = false, .head = Head::other}, true},
                        {"the embedding twice", {.head = Head::same}, {}, false},
                        {"the head alone", {.embedding = false, .head = Head::same}, {}, false}};
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    const TempFolder folder, meant;
    write_model(folder / "model", c.files);
    write_model(meant / "model", c.meant);
    const Results got = results_of(folder.path()), expected = results_of(meant.path());
    for (const auto& [command, bytes] : expected.bytes) EXPECT_TRUE(got.bytes.at(command) == bytes) << command;
    for (const auto& [command, warned] : got.warned) EXPECT_EQ(warned, c.warns) << command;
    for (const auto& [command, warned] : expected.warned) EXPECT_FALSE(warned) << command;
    for (const char* written : {"trained", "merged", "quantized"})
      EXPECT_EQ(read_json(folder / written / "config.json").at("tie_word_embeddings"), c.meant.tied) << written;
  }
}

// In a model with separate weights, the head does not replace a missing embedding.
TEST(TiedHead, DoesNotStandInForAnEmbeddingOfItsOwn) {
  const TempFolder folder;
  write_model(folder / "model", {.tied = false, .embedding = false, .head = HeadFiles::Head::same});
  const Outcome outcome =
      qtrain({.words = {"generate", "--model", folder / "model", "--raw", "--prompt", letters({5})}});
  EXPECT_EQ(outcome.code, 3);
  EXPECT_THAT(outcome.err, ::testing::HasSubstr(kEmbedding));
}

}  // namespace
}  // namespace qtrain::e2e
