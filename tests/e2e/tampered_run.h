#pragma once
// Runs that are modified after they have finished.
#include <gmock/gmock.h>

#include <functional>
#include <string>
#include <vector>

#include "tests/e2e/verified_run.h"

namespace qtrain::e2e {

/// A modification of a run's files.
struct Tampering {
  enum class Seal : std::uint8_t { kept, anew };  ///< whether manifests are regenerated afterwards
  std::string name;
  std::string folder, file;  ///< in the output directory
  std::function<void(const fs::path& file)> change;
  Seal seal = Seal::anew;
  std::string says = {};  ///< expected in the message, besides the name of the file
};

class TamperedRun : public VerifiedRun {
 protected:
  void tamper(const Tampering& t) const {
    const fs::path folder = output() / t.folder;
    t.change(folder / t.file);
    if (t.seal == Tampering::Seal::anew) seal(folder);
  }
  /// Updates the hashes in the result to the current files next to it.
  void seal_what_lies_beside() const {
    Json results = read_json(output() / "train_results.json");
    const std::string metrics = bytes_of(output() / "metrics.jsonl");
    results["resolved_config_sha256"] = sha256_of_file(output() / "resolved_config.json");
    results["metrics_jsonl"] = {{"bytes", metrics.size()}, {"sha256", sha256_of(metrics)}};
    write_document(output() / "train_results.json", results);
    seal(output());
  }
  // The modification is named whether or not the steps are repeated.
  void expect_named(const Tampering& t, const Outcome& o) const {
    EXPECT_EQ(o.code, 3) << o.out << o.err;
    EXPECT_THAT(o.out, ::testing::HasSubstr("does not match its records"));
    EXPECT_THAT(o.out, ::testing::HasSubstr(fs::path(t.file).filename().string())) << o.err;
    EXPECT_THAT(o.out, ::testing::HasSubstr(t.says)) << o.err;
  }
  /// Applies each change to the same run, restoring its files afterwards.
  void expect_all_found(const std::vector<Tampering>& all) {
    fs::copy(output(), at("kept"), fs::copy_options::recursive);
    for (const Tampering& t : all) {
      SCOPED_TRACE(t.name);
      tamper(t);
      expect_named(t, verify({"--steps", t.seal == Tampering::Seal::kept ? "0" : "100"}));
      fs::remove_all(output());
      fs::copy(at("kept"), output(), fs::copy_options::recursive);
    }
    EXPECT_EQ(verify().code, 0) << "the files are what they were";
  }
};

}  // namespace qtrain::e2e
