#include "train/setup/named_tokens.h"

#include <gmock/gmock.h>

#include "core/os/file.h"
#include "data/encode.h"
#include "tests/core/temp_folder.h"
#include "train/setup/text_folder.h"

namespace qtrain {
namespace {

namespace fs = std::filesystem;
using qtrain::testing::error_of;
using ::testing::HasSubstr;

const fs::path kRepository = QTRAIN_SOURCE_DIR;

/// Creates the initial model folder of a golden case.
void write_base(const Json& golden, const fs::path& folder) {
  fs::create_directories(folder);
  for (const char* name : {"tokenizer.json", "tokenizer_config.json"})
    write_file(folder / name, read_text(kRepository / "tests/data/golden/chatml" / name));
  write_file(folder / "chat_template.jinja", "{{ messages[0].content + eos_token }}");
  write_file(folder / "config.json", dump_json({{"eos_token_id", golden["model"]}, {"vocab_size", 400}}));
  if (golden["generation"] != "")
    write_file(folder / "generation_config.json",
               dump_json({{"eos_token_id", golden["generation"]}, {"temperature", 0.6}}));
}

/// Saves like a full run: the model's files, then the tokenizer's and template's.
void save_run(const TextFolder& text, const fs::path& base, const fs::path& to) {
  fs::create_directories(to);
  for (const char* name : {"config.json", "generation_config.json"})
    if (fs::exists(base / name)) write_file(to / name, read_text(base / name));
  save_text_folder(text, to);
}

TEST(NamedTokens, AreUsedAndSavedAsTrlDoes) {
  const testing::TempFolder folder;
  int number = 0;
  for (const Json& golden : read_json(kRepository / "tests/train/goldens/named_tokens.json")) {
    SCOPED_TRACE(golden.dump());
    const fs::path base = folder / ("base" + std::to_string(++number)), out = folder / ("out" + std::to_string(number));
    write_base(golden, base);
    Json asked = golden["asked"];
    asked.update({{"model_name_or_path", base.string()}, {"dataset_name", "d"}, {"output_dir", out.string()}});
    const Config config = parse_config(dump_json(asked), "c.json").value;
    if (golden.contains("error")) {
      const Error error = error_of([&] { load_text_folder(config); });
      EXPECT_EQ(error.kind(), ErrorKind::usage);
      EXPECT_THAT(error.what(), HasSubstr("<|nothing|>"));
      continue;
    }
    const TextFolder text = load_text_folder(config);
    const Json& saved = golden["saved"];
    EXPECT_EQ(Json(RowEncoder({}, text.tools()).encode({{"text", "a"}}).input_ids), saved["row"]);
    save_run(text, base, out);
    for (const auto& [file, values] : saved.items()) {
      if (file == "row") continue;
      const Json found = read_json(out / file);
      for (const auto& [key, value] : values.items()) EXPECT_EQ(found.value(key, Json()), value) << file << " " << key;
    }
    if (golden["generation"] != "") {
      EXPECT_EQ(read_json(out / "generation_config.json")["temperature"], 0.6);
    }
    const std::string eos = asked.value("eos_token", "<|im_end|>");
    const Json messages = Json::array({{{"role", "user"}, {"content", "q"}}});
    for (const TextFolder& t : {load_text_folder(config), load_text_folder(out)})
      EXPECT_EQ(t.chat_template->render({.messages = &messages}).text, "q" + eos);
    EXPECT_EQ(load_text_folder(out).tokenizer->special().eos_id, text.tokenizer->special().eos_id);
  }
  EXPECT_EQ(number, 8);
}

/// A config with eos_token: auto, for a base model whose own end token is <|endoftext|>.
Config automatic(const fs::path& base, Json more) {
  fs::remove_all(base);
  write_base({{"model", 0}, {"generation", 0}}, base);
  write_file(base / "tokenizer_config.json", R"({"eos_token": "<|endoftext|>"})");
  more.update(
      {{"model_name_or_path", base.string()}, {"dataset_name", "d"}, {"output_dir", "o"}, {"eos_token", "auto"}});
  return parse_config(dump_json(more), "c.json").value;
}

TEST(NamedTokens, AnAutomaticEndTokenIsTheOneThatEndsAnswersOfTheTemplate) {
  const testing::TempFolder folder;
  const fs::path base = folder / "base", out = folder / "out";
  const auto path = [](const char* source) { return Json{{"chat_template_path", source}}; };
  const Json all_learned = path("chatml");
  Json answers_learned = all_learned;
  answers_learned["assistant_only_loss"] = true;
  const struct {
    const char* name;
    Json config;
    const char* end;
    int id;
  } cases[] = {
      {"a base model that learns ChatML", all_learned, "<|im_end|>", 2},
      {"the same by answers only", answers_learned, "<|im_end|>", 2},
      {"a template that ends with the tokenizer's own", path("vicuna"), "<|endoftext|>", 0},
      {"another end behind the last answer",
       path("{% for m in messages %}{{ m.content }}<|im_end|>\n{% endfor %}<|im_start|>\n"), "<|im_start|>", 1},
      {"a template that wants a system message",
       path("{% if messages[0].role != 'system' %}{{ raise_exception('no system') }}{% endif %}"
            "{% for m in messages %}{{ m.content }}<|im_end|>{% endfor %}"),
       "<|im_end|>", 2},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.name);
    const Config config = automatic(base, c.config);
    const TextFolder text = load_text_folder(config);
    EXPECT_EQ(text.tokenizer->special().eos_id, c.id);
    EXPECT_EQ(RowEncoder({}, text.tools()).encode({{"text", "a"}}).input_ids.back(), c.id) << "texts end in it too";
    fs::remove_all(out);
    save_run(text, base, out);
    EXPECT_EQ(read_json(out / "tokenizer_config.json")["eos_token"], c.end);
    EXPECT_EQ(read_json(out / "config.json")["eos_token_id"], c.id);
    EXPECT_EQ(read_json(out / "generation_config.json")["eos_token_id"], c.id == 0 ? Json(0) : Json::array({c.id, 0}));
  }
}

TEST(NamedTokens, AnAutomaticEndTokenHasToBeThere) {
  const testing::TempFolder folder;
  const std::pair<Json, const char*> cases[] = {
      {{{"chat_template_path", "llama3"}}, "does not end answers with a special token"},
      {{{"chat_template_path", "{% for m in messages %}{{ m.content }}{% endfor %}"}},
       "does not end answers with a special token"},
      {{{"chat_template_path", "{{ raise_exception('not today') }}"}}, "not today"},
      {Json::object(), "no chat template"},
  };
  for (const auto& [more, said] : cases) {
    const Config config = automatic(folder / "base", more);
    if (more.empty()) fs::remove(folder / "base/chat_template.jinja");
    const Error error = error_of([&] { load_text_folder(config); });
    EXPECT_EQ(error.kind(), ErrorKind::usage) << more;
    EXPECT_THAT(error.what(), ::testing::AllOf(HasSubstr("eos_token is auto"), HasSubstr(said))) << more;
  }
}

TEST(NamedTokens, AnAdapterFolderHasNoIds) {
  const testing::TempFolder folder;
  const Json golden = {{"model", 2}, {"generation", 2}};
  write_base(golden, folder / "base");
  write_file(folder / "base/special_tokens_map.json", R"({"eos_token": {"content": "<|im_end|>"}, "unk_token": "?"})");
  const Config config = parse_config(dump_json({{"model_name_or_path", (folder / "base").string()},
                                                {"dataset_name", "d"},
                                                {"output_dir", "o"},
                                                {"eos_token", "<|endoftext|>"}}),
                                     "c.json")
                            .value;
  fs::create_directories(folder / "out");
  save_text_folder(load_text_folder(config), folder / "out");
  EXPECT_FALSE(fs::exists(folder / "out/config.json"));
  EXPECT_FALSE(fs::exists(folder / "out/generation_config.json"));
  EXPECT_EQ(read_json(folder / "out/special_tokens_map.json"),
            Json({{"eos_token", "<|endoftext|>"}, {"unk_token", "?"}}));
}

TEST(NamedTokens, APadTokenDoesNotMakeAnEndOfAnswers) {
  const testing::TempFolder folder;
  write_base({{"model", nullptr}, {"generation", ""}}, folder / "base");
  const Config config = parse_config(dump_json({{"model_name_or_path", (folder / "base").string()},
                                                {"dataset_name", "d"},
                                                {"output_dir", "o"},
                                                {"pad_token", "<|endoftext|>"}}),
                                     "c.json")
                            .value;
  save_run(load_text_folder(config), folder / "base", folder / "out");
  EXPECT_EQ(read_json(folder / "out/generation_config.json"), Json({{"pad_token_id", 0}}));
}

TEST(NamedTokens, AMissingTokenizerIsNotABadToken) {
  const testing::TempFolder folder;
  write_base({{"model", 2}, {"generation", ""}}, folder / "base");
  fs::remove(folder / "base/tokenizer.json");
  const Config config = parse_config(dump_json({{"model_name_or_path", (folder / "base").string()},
                                                {"dataset_name", "d"},
                                                {"output_dir", "o"},
                                                {"eos_token", "<|endoftext|>"}}),
                                     "c.json")
                            .value;
  const Error error = error_of([&] { load_text_folder(config); });
  EXPECT_EQ(error.kind(), ErrorKind::input);
  EXPECT_THAT(error.what(), HasSubstr("base: neither tokenizer.json nor tokenizer.model found"));
}

}  // namespace
}  // namespace qtrain
