#include "app/reproduction/relocation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "core/os/file.h"
#include "tests/core/temp_folder.h"

namespace qtrain {
namespace {

namespace fs = std::filesystem;

class Moved : public ::testing::Test {
 protected:
  void make(const fs::path& file) const {
    fs::create_directories((folder_ / file).parent_path());
    write_file(folder_ / file, "");
  }
  Relocation moved(const fs::path& was, const fs::path& is) const { return {folder_ / was, folder_ / is}; }
  fs::path at(const fs::path& name) const { return folder_ / name; }
  testing::TempFolder folder_;
};

TEST_F(Moved, FilesAreWhereTheFoldersAboveTheOutputDirectoryWent) {
  make("new/model/config.json");
  make("new/runs/1/out/x");
  make("old/stayed/rows.jsonl");
  const Relocation places = moved("old/runs/1/out", "new/runs/1/out");
  struct Case {
    const char *was, *is;
  };
  for (const auto& [was, is] :
       {Case{"old/model/config.json", "new/model/config.json"}, Case{"old/model/*.json", "new/model/*.json"},
        Case{"old/stayed/rows.jsonl", "old/stayed/rows.jsonl"},  // it is still there
        Case{"old/gone", "old/gone"}, Case{"else/model/config.json", "else/model/config.json"}})
    EXPECT_EQ(places.now(at(was)), at(is)) << was;
}

TEST_F(Moved, NamesStayAsTheyAreWhereTheyMeanTheSame) {
  make("new/model/config.json");
  const Relocation places = moved("old/out", "new/out");
  EXPECT_EQ(places.name_now("model", at("new")), "model") << "the folder that the name is relative to is known";
  EXPECT_EQ(places.name_now("model", at("old")), at("new/model"));
  EXPECT_EQ(places.name_now("adamw_torch", at("old")), "adamw_torch");
}

TEST_F(Moved, NothingIsLookedForWhereNothingWasMoved) {
  make("a/model");
  EXPECT_EQ(moved("a/out", "a/out").now(at("b/model")), at("b/model"));
  EXPECT_EQ(Relocation().now(at("b/model")), at("b/model"));
}

TEST_F(Moved, DocumentsGetTheirNamesBack) {
  make("new/model/config.json");
  Json document{{"model", at("old/model").string()}, {"list", {at("old/model").string(), "other"}}, {"n", 7}};
  const Json before = document;
  const Renames renames = rename_moved(document, moved("old/out", "new/out"), at("old"));
  EXPECT_EQ(document["model"], at("new/model").string());
  EXPECT_EQ(document["list"][0], at("new/model").string());
  EXPECT_EQ(with_former_names(document, renames), before);
}

}  // namespace
}  // namespace qtrain
