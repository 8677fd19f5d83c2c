// Chat templates that write the date see the same date during a whole run, even if it is resumed later.
#include "core/os/file.h"
#include "tests/e2e/support.h"

namespace qtrain::e2e {
namespace {

using ::testing::HasSubstr;

constexpr const char* kDated =
    "{{ strftime_now('%d %b %Y') }}\n{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}";

class TemplateDate : public ::testing::Test {
 protected:
  TemplateDate() {
    write_untrained_model(folder_ / "model");
    write_file(folder_ / "model/chat_template.jinja", kDated);
    std::vector<Json> rows;
    for (const char* text : {"one", "two", "three", "four", "five"})
      rows.push_back(
          {{"messages", {{{"role", "user"}, {"content", "count"}}, {{"role", "assistant"}, {"content", text}}}}});
    write_file(folder_ / "rows.jsonl", jsonl(rows));
  }
  Json config(const char* output, const Json& more) const {
    Json config = tiny_run(folder_ / output);
    config.update({{"model_name_or_path", (folder_ / "model").string()},
                   {"dataset_name", (folder_ / "rows.jsonl").string()},
                   {"token_cache_dir", (folder_ / "cache").string()},
                   {"max_steps", 4},
                   {"save_strategy", "steps"},
                   {"save_steps", 2}});
    config.update(more);
    return config;
  }
  /// Fingerprint of the rows as they are prepared now.
  std::string fingerprint(const Json& more) const {
    write_file(folder_ / "rows.json", dump_json(config("none", more)));
    const Outcome o = qtrain_ok({.words = {"preprocess", (folder_ / "rows.json").string(), "--json"}});
    return parse_json(o.out, "preprocess").at("fingerprint");
  }
  int cached_files() const {
    int files = 0;
    for (const auto& entry : fs::directory_iterator(folder_ / "cache")) files += entry.path().extension() == ".tokens";
    return files;
  }

  TempFolder folder_;
};

// These time zones differ by more than a day, so the dates differ whenever the test runs.
const std::vector<std::string> kInTheEast{"TZ=EAST-14"}, kInTheWest{"TZ=WEST+12"};

TEST_F(TemplateDate, ARunIsTheSameOnAnotherDay) {
  for (const char* saves : {"steps", "no"}) {
    fs::remove_all(folder_ / "out");
    fs::remove_all(folder_ / "again");
    fs::remove(folder_ / "s.json");
    write_file(folder_ / "run.json", dump_json(config("out", {{"save_strategy", saves}})));
    qtrain_ok({.words = {(folder_ / "run.json").string()}, .environment = kInTheEast});
    const std::string out = (folder_ / "out").string(), statement = (folder_ / "s.json").string();
    const Outcome o =
        qtrain({.words = {"verify", out, "--steps", "100", "--statement", statement}, .environment = kInTheWest});
    EXPECT_EQ(o.code, 0) << saves << o.out << o.err;
    const Json date = read_json(folder_ / "out/resolved_config.json").at("run").at("template_date");
    EXPECT_EQ(read_json(statement)["predicate"]["buildDefinition"]["externalParameters"]["template_date"], date);
    const Outcome again =
        qtrain_ok({.words = {"reproduce", out, "--output", (folder_ / "again").string()}, .environment = kInTheWest});
    EXPECT_EQ(bytes_of(folder_ / "again/model.safetensors"), bytes_of(folder_ / "out/model.safetensors")) << again.err;
  }
}

TEST_F(TemplateDate, ARunThatGoesOnKeepsItsDay) {
  train_ok(folder_.path(), config("whole", {{"template_date", "2024-02-29"}}));
  for (const char* cache : {"", "cache"}) {
    const fs::path part = folder_ / "part";
    fs::remove_all(part);
    fs::create_directories(part);
    fs::copy(folder_ / "whole/checkpoint-2", part / "checkpoint-2");
    const std::string dir = *cache ? (folder_ / cache).string() : "";
    const Outcome o = train_ok(folder_.path(), config("part", {{"token_cache_dir", dir}}));
    EXPECT_THAT(o.err, HasSubstr("the date 2024-02-29, as in the checkpoint"));
    EXPECT_THAT(o.err, HasSubstr("at step 2 of"));
    EXPECT_EQ(bytes_of(part / "model.safetensors"), bytes_of(folder_ / "whole/model.safetensors")) << cache;
  }
  EXPECT_EQ(cached_files(), 1);
  write_file(folder_ / "other.json", dump_json(config("whole", {{"template_date", "2024-03-01"}, {"max_steps", 6}})));
  const Outcome other = qtrain({.words = {(folder_ / "other.json").string()}});
  EXPECT_EQ(other.code, 2);
  EXPECT_THAT(other.err, HasSubstr("template_date = \"2024-02-29\", the config says \"2024-03-01\""));
}

// The run resumes from an earlier checkpoint, whose date applies.
TEST_F(TemplateDate, ADamagedCheckpointHasNoSay) {
  const Json run = config("out", {{"template_date", "2024-02-29"}});
  const fs::path state = folder_ / "out/checkpoint-4/training_state.json";
  for (const Json& identity : {Json{{"template_date", "2024-03-01"}}, Json(4)}) {
    fs::remove_all(folder_ / "out");
    train_ok(folder_.path(), run);
    Json changed = read_json(state);
    changed["identity"] = identity;
    write_file(state, dump_json(changed));
    if (!identity.is_object()) reseal(state.parent_path(), "training_state.json");
    const Outcome o = train_ok(folder_.path(), config("out", Json::object()));
    EXPECT_THAT(o.err, HasSubstr("the date 2024-02-29, as in the checkpoint")) << identity;
    EXPECT_THAT(o.err, HasSubstr("at step 2 of")) << identity;
  }
}

TEST_F(TemplateDate, RowsOfAnotherDayAreOthersWhereTheTemplateWritesIt) {
  const std::string leap_day = fingerprint({{"template_date", "2024-02-29"}});
  EXPECT_EQ(fingerprint({{"template_date", "2024-02-29"}}), leap_day);
  EXPECT_EQ(cached_files(), 1);
  EXPECT_NE(fingerprint({{"template_date", "2024-03-01"}}), leap_day);
  EXPECT_NE(fingerprint(Json::object()), leap_day) << "today";
  EXPECT_EQ(cached_files(), 3);
  const Json plain{{"chat_template_path", "chatml"}, {"template_date", "2024-02-29"}};
  Json later = plain;
  later["template_date"] = "2024-03-01";
  EXPECT_EQ(fingerprint(plain), fingerprint(later));
  EXPECT_EQ(cached_files(), 4);
}

TEST_F(TemplateDate, ADayThatIsNotInTheCalendarIsRefused) {
  for (const char* date : {"2023-02-29", "2024-1-1", "1.1.2024", "today"}) {
    write_file(folder_ / "run.json", dump_json(config("out", {{"template_date", date}})));
    const Outcome o = qtrain({.words = {"preprocess", (folder_ / "run.json").string()}});
    EXPECT_EQ(o.code, 2) << date;
    EXPECT_THAT(o.err, HasSubstr("not a day of the calendar")) << date;
  }
}

}  // namespace
}  // namespace qtrain::e2e
