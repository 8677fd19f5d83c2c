// Folders whose names are not UTF-8, which JSON cannot hold.
#include "tests/e2e/verified_run.h"

namespace qtrain::e2e {
namespace {

using ::testing::HasSubstr;

class UndecodableFolder : public VerifiedRun {
 protected:
  void SetUp() override {
    VerifiedRun::SetUp();
    fs::create_directories(here());
    fs::rename(model(), here() / "model");
    fs::rename(rows(), here() / "rows.jsonl");
    Json c = config();
    c.update({{"model_name_or_path", "model"}, {"dataset_name", "rows.jsonl"}, {"output_dir", "out"}});
    write_file(here() / "run.json", dump_json(c));
  }
  fs::path here() const { return at("caf\xe9"); }
  Outcome call(const std::vector<std::string>& words) const { return qtrain({.words = words, .folder = here()}); }
};

TEST_F(UndecodableFolder, OfARunIsNoObstacle) {
  EXPECT_EQ(call({"run.json", "--stop_after", "3"}).code, 75);
  const Outcome resumed = call({"run.json"});
  EXPECT_EQ(resumed.code, 0) << resumed.err;
  EXPECT_THAT(resumed.err, HasSubstr("resumed from"));
  const std::string out = (here() / "out").string();
  for (const std::string& name : {std::string("out"), out}) {
    const Outcome o = call({"verify", name, "--steps", "100", "--statement", "statement.json", "--overwrite"});
    EXPECT_EQ(o.code, 0) << o.out << o.err;
  }
  const Outcome again = call({"reproduce", "out", "--output", at("again").string()});
  EXPECT_EQ(again.code, 0) << again.err;
  EXPECT_THAT(again.err, HasSubstr("bit for bit"));
}

TEST_F(UndecodableFolder, OfAnOutputIsOneToo) {
  const std::string output = "output_dir=" + (here() / "other").string();
  EXPECT_EQ(call({"run.json", output, "--stop_after", "3"}).code, 75);
  EXPECT_EQ(call({"run.json", output, "report_to=[\"wandb\", \"mlflow\"]"}).code, 0);
  const Outcome o = call({"verify", "other", "--steps", "100"});
  EXPECT_EQ(o.code, 0) << o.out << o.err;
}

}  // namespace
}  // namespace qtrain::e2e
