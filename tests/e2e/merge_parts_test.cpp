// Merging uses only the parts of an adapter that its config names, whatever else the file contains.
#include <fmt/format.h>

#include "core/formats/safetensors.h"
#include "core/os/file.h"
#include "tests/e2e/support.h"

namespace qtrain::e2e {
namespace {

using ::testing::HasSubstr;

const fs::path kBaseOfParts = kGoldens / "llama_gqa3_tied", kWholeAdapter = kGoldens / "lora_llama_all/adapter";

/// The golden adapter with a changed adapter_config.json, and how many layers then have an adapter.
struct NamedPart {
  Json keys;
  int layers;
  bool warns = true;
};

NamedTensors with_names(const SafetensorsReader& reader, const std::string& from, const std::string& to) {
  NamedTensors tensors;
  for (const auto& [name, tensor] : reader.tensors()) {
    const std::size_t at = name.find(from);
    tensors.emplace_back(at == name.npos ? name : name.substr(0, at) + to + name.substr(at + from.size()), tensor);
  }
  return tensors;
}

void write_adapter(const fs::path& to, const Json& keys, const NamedTensors& tensors) {
  fs::create_directories(to);
  Json config = read_json(kWholeAdapter / "adapter_config.json");  // its targets are full names
  config["target_modules"] = {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"};
  if (!keys.is_null()) config.update(keys);
  write_file(to / "adapter_config.json", dump_json(config));
  write_safetensors(to / "adapter_model.safetensors", tensors);
}

int changed_tensors(const fs::path& merged) {
  const auto before = tensors_of(kBaseOfParts), after = tensors_of(merged);
  int changed = 0;
  for (const auto& [name, values] : before) changed += after.at(name) != values;
  return changed;
}

// --data compares with `eval`, which applies the adapter without merging.
void expect_part_in_all_commands(const fs::path& folder, const fs::path& adapter, const NamedPart& part) {
  const Outcome merge =
      qtrain_ok({.words = {"merge", "--model", kBaseOfParts, "--adapter", adapter, "--output", folder / "merged",
                           "--data", kGoldens / "curves/cosine/data.jsonl", "--json"}});
  const Json losses = parse_json(merge.out, "merge");
  EXPECT_NEAR(losses.at("merged_eval_loss"), losses.at("adapter_eval_loss"), 2e-6);
  EXPECT_EQ(changed_tensors(folder / "merged"), part.layers);
  EXPECT_EQ(merge.err.find("not part of the model") != merge.err.npos, part.warns) << merge.err;
  const Outcome exported = qtrain_ok({.words = {"export", "--model", kBaseOfParts, "--adapter", adapter, "--output",
                                                folder / "adapter.gguf", "--json"}});
  EXPECT_EQ(parse_json(exported.out, "export").at("tensors").begin().value(), 2 * part.layers);
  EXPECT_EQ(exported.err.find("not part of the model") != exported.err.npos, part.warns) << exported.err;
}

TEST(MergeOfParts, AppliesWhatTheConfigNamesAsEvalDoes) {
  const NamedPart parts[] = {{{{"target_modules", {"q_proj"}}}, 2},
                             {{{"exclude_modules", {"down_proj", "layers.0.mlp.up_proj"}}}, 11},
                             {{{"exclude_modules", ".*mlp.*"}}, 8},
                             {{{"layers_to_transform", {1}}}, 7},
                             {{{"layers_to_transform", 0}, {"layers_pattern", "layers"}}, 7},
                             {{}, 14, false}};
  const SafetensorsReader whole(kWholeAdapter);
  for (const NamedPart& part : parts) {
    SCOPED_TRACE(part.keys.dump());
    const TempFolder folder;
    write_adapter(folder / "adapter", part.keys, with_names(whole, "none", "none"));
    expect_part_in_all_commands(folder.path(), folder / "adapter", part);
  }
}

// Names as in a module's own state_dict, and tensors of a layer that the model does not have.
TEST(MergeOfParts, ReadsAdaptersWithOtherNames) {
  struct Case {
    const char *from, *to;
    int layers;
    bool warns;
  };
  const SafetensorsReader whole(kWholeAdapter);
  for (const Case& c : {Case{".lora_A.weight", ".lora_A.default.weight", 14, false},
                        Case{".lora_B.weight", ".lora_B.default.weight", 14, false}}) {
    SCOPED_TRACE(c.to);
    const TempFolder folder;
    write_adapter(folder / "adapter", {}, with_names(whole, c.from, c.to));
    expect_part_in_all_commands(folder.path(), folder / "adapter", {{}, c.layers, c.warns});
  }
  const TempFolder folder;
  NamedTensors more = with_names(whole, "none", "none");
  for (const auto& [name, tensor] : with_names(whole, "layers.1.", "layers.7."))
    if (name.find("layers.7.") != name.npos) more.emplace_back(name, tensor);
  write_adapter(folder / "adapter", {}, more);
  expect_part_in_all_commands(folder.path(), folder / "adapter", {{}, 14, true});
}

TEST(MergeOfParts, RefusesAnAdapterThatChangesNothing) {
  const TempFolder folder;
  write_adapter(folder / "adapter", {},
                with_names(SafetensorsReader(kWholeAdapter), "base_model.model.model", "model"));
  const Outcome outcome = qtrain(
      {.words = {"merge", "--model", kBaseOfParts, "--adapter", folder / "adapter", "--output", folder / "out"}});
  EXPECT_EQ(outcome.code, 3);
  EXPECT_THAT(outcome.err, HasSubstr("has no tensors for"));
  EXPECT_FALSE(fs::exists(folder / "out"));
}

// PEFT saves all layers of a module that modules_to_save names.
TEST(MergeOfParts, ModulesOfSeveralLayersAreRefusedByTheirNames) {
  const TempFolder folder;
  const SafetensorsReader adapter(kWholeAdapter), base(kBaseOfParts);
  NamedTensors tensors(adapter.tensors().begin(), adapter.tensors().end());
  const std::string inside = "model.layers.0.mlp.up_proj.weight";
  tensors.emplace_back("base_model.model." + inside, base.at(inside));
  for (const char* name : {"mlp", "layers.0", "model"}) {
    write_adapter(folder / "adapter", {{"target_modules", {"q_proj"}}, {"modules_to_save", {name}}}, tensors);
    const std::string model = kBaseOfParts.string(), adapted = (folder / "adapter").string(),
                      out = (folder / "out").string();
    for (const std::vector<std::string>& words :
         {std::vector<std::string>{"merge", "--model", model, "--adapter", adapted, "--output", out},
          {"export", "--model", model, "--adapter", adapted, "--output", out},
          {"export", "--merge", "--model", model, "--adapter", adapted, "--output", out},
          {"generate", "--model", model, "--adapter", adapted, "--raw", "--prompt", "a"}}) {
      const Outcome outcome = qtrain({.words = words});
      EXPECT_TRUE(outcome.code == 2 || outcome.code == 3) << words[0] << outcome.err;
      EXPECT_THAT(outcome.err, HasSubstr(fmt::format("modules_to_save: \"{}\" is not a layer of the model", name)))
          << words[0];
      EXPECT_FALSE(fs::exists(out)) << words[0];
    }
  }
}

}  // namespace
}  // namespace qtrain::e2e
