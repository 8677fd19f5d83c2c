#include "app/reproduction/recorded_run.h"

#include <gtest/gtest.h>

#include "core/parallel.h"

namespace qtrain {
namespace {

// A record may claim any number; results do not depend on it.
TEST(RecordedDocuments, HaveNoMoreThreadsThanProcessors) {
  const auto document = [](const Json& threads) {
    RecordedRun run;
    run.values = {{"threads", {{"value", threads}, {"origin", "c.json"}}},
                  {"seed", {{"value", 7}, {"origin", "c.json"}}}};
    run.run = Json::object();
    return recorded_document(run, {.output = "/out"}).json;
  };
  EXPECT_EQ(document(1).at("threads"), 1);
  EXPECT_EQ(document(usable_processors()).at("threads"), usable_processors());
  for (const Json& many : {Json(usable_processors() + 1), Json(4096), Json(1e9), Json(std::uint64_t{1} << 63)}) {
    EXPECT_FALSE(document(many).contains("threads")) << many;
    EXPECT_EQ(document(many).at("seed"), 7);
  }
}

}  // namespace
}  // namespace qtrain
