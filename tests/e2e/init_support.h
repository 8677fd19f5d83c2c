#pragma once
#include <fmt/format.h>

#include <string>
#include <utility>
#include <vector>

#include "core/os/file.h"
#include "tests/e2e/screen.h"
#include "tests/e2e/support.h"

namespace qtrain::e2e {

inline Json turn(const char* role, const std::string& content) {
  return {{"role", role}, {"content", content}};
}

inline std::string question(int i) {
  return fmt::format("what comes after {}?", i);
}

inline std::string answer(int i) {
  return fmt::format("after {} comes {}", i, i + 1);
}

/// A folder with a model and data sets, for `qtrain init`.
class Init : public ::testing::Test {
 protected:
  void SetUp() override {
    write_untrained_model(folder_ / "llama");
    give_random_weights(folder_ / "llama");
    write_rows(40);
  }
  /// A model without a chat template.
  void write_base_model() {
    fs::copy(folder_ / "llama", folder_ / "base");
    fs::remove(folder_ / "base/chat_template.jinja");
  }
  /// A model of another family, without weights.
  void write_blank_model() {
    write_untrained_model(folder_ / "blank");
    Json config = read_json(folder_ / "blank/config.json");
    config.update({{"architectures", {"Qwen3ForCausalLM"}}, {"model_type", "qwen3"}, {"head_dim", 12}});
    write_file(folder_ / "blank/config.json", dump_json(config));
  }
  void write_rows(int n) {
    std::vector<Json> chats, texts;
    std::string table = "Nr;Frage;Antwort\n";
    for (int i = 0; i < n; ++i) {
      chats.push_back({{"messages", {turn("user", question(i)), turn("assistant", answer(i))}}});
      texts.push_back({{"text", question(i) + " " + answer(i)}});
      table += fmt::format("{};{};{}\n", i, question(i), answer(i));
    }
    write_file(folder_ / "chats.jsonl", jsonl(chats));
    write_file(folder_ / "texts.jsonl", jsonl(texts));
    write_file(folder_ / "table.csv", table);
  }
  Outcome run(std::vector<std::string> words) const {
    return qtrain({.words = std::move(words), .folder = folder_.path()});
  }
  Outcome init(std::vector<std::string> more) const {
    more.insert(more.begin(), "init");
    return run(std::move(more));
  }
  Outcome init_chats(std::vector<std::string> more) const {
    more.insert(more.begin(), {"--model", "llama", "--data", "chats.jsonl"});
    return init(std::move(more));
  }
  Json config() const { return read_json(folder_ / "config.json", {.comments = true}); }
  bool wrote() const { return fs::exists(folder_ / "config.json"); }

  Launch typed(int columns = 80) const {
    return {.argv = {program(), "init", "--model", "llama", "--data", "chats.jsonl"},
            .folder = folder_.path(),
            .environment = {"TERM=xterm", "NO_COLOR=1"},
            .columns = columns};
  }
  TempFolder folder_;
};

}  // namespace qtrain::e2e
