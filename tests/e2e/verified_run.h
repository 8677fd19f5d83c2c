#pragma once
// Runs that are verified against their records.
#include <string>
#include <utility>
#include <vector>

#include "core/os/file.h"
#include "core/sha256.h"
#include "tests/e2e/support.h"

namespace qtrain::e2e {

/// A folder with rows and a model without weights, whose tokenizer and template are saved with the result.
class VerifiedRun : public ::testing::Test {
 protected:
  fs::path at(const std::string& name) const { return folder_ / name; }
  fs::path model() const { return at("model"); }
  fs::path rows() const { return at("rows.jsonl"); }
  fs::path output() const { return at("out"); }

  void SetUp() override {
    write_untrained_model(model());
    std::string lines;
    for (int i = 0; i < 12; ++i)
      lines += jsonl({{{"text", "row " + std::to_string(i) + " of some that are told apart"}}});
    write_file(rows(), lines);
  }
  /// Trains all weights for four steps, with checkpoints after steps two and four, and evaluations.
  Json config() const {
    Json c = tiny_run(output());
    c.update({{"model_name_or_path", model().string()},
              {"dataset_name", rows().string()},
              {"random_init", true},
              {"max_length", 32},
              {"max_steps", 4},
              {"device", "cpu"},
              {"eval_split", 2},
              {"eval_strategy", "steps"},
              {"eval_steps", 2},
              {"save_strategy", "steps"},
              {"save_steps", 2}});
    return c;
  }
  /// The same with an adapter on a model with weights.
  Json adapter_config() {
    if (!fs::exists(at("base"))) {
      Json c = config();
      c.update({{"output_dir", at("base").string()}, {"max_steps", 1}, {"save_strategy", "no"}});
      train_ok(folder_.path(), c);
    }
    Json c = config();
    c.erase("random_init");
    c.update({{"model_name_or_path", at("base").string()},
              {"use_peft", true},
              {"lora_r", 4},
              {"lora_alpha", 8},
              {"lora_target_modules", "all-linear"}});
    return c;
  }
  Outcome verify(const std::vector<std::string>& more = {"--steps", "100"}) const { return verify_of(output(), more); }
  Outcome verify_of(const fs::path& run, const std::vector<std::string>& more = {"--steps", "100"}) const {
    std::vector<std::string> words{"verify", run.string(), "--scratch", folder_.path().string()};
    words.insert(words.end(), more.begin(), more.end());
    return qtrain({.words = words, .folder = folder_.path()});
  }
  /// Regenerates a manifest as docs/files.md describes.
  static void seal(const fs::path& folder) {
    Json manifest = read_json(folder / "manifest.json");
    for (const auto& [name, file] : manifest["files"].items())
      file = {{"sha256", sha256_of_file(folder / name)}, {"size", fs::file_size(folder / name)}};
    manifest.erase("sha256");
    manifest["sha256"] = sha256_of(dump_json(manifest));
    write_file(folder / "manifest.json", dump_json(manifest, 2) + "\n");
  }
  TempFolder folder_;
};

/// Replaces the first `from` in a file by `to`.
inline void change_text(const fs::path& file, const std::string& from, const std::string& to) {
  std::string text = bytes_of(file);
  ASSERT_NE(text.find(from), text.npos) << from << " in " << file;
  write_file(file, text.replace(text.find(from), from.size(), to));
}

/// Writes a document in the program's format.
inline void write_document(const fs::path& file, const Json& json) {
  write_file(file, dump_json(json, 2) + "\n");
}

}  // namespace qtrain::e2e
