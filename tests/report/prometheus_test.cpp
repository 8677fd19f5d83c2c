#include "report/prometheus.h"

#include <gmock/gmock.h>

#include <cmath>

namespace qtrain {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(PrometheusText, HasWhatIsKnownWithHelpAndType) {
  const std::string text = prometheus_text(
      {.step = 12, .max_steps = 60, .tokens = 3400, .loss = std::nan(""), .data_wait = 0.25}, "a \"b\"\\\n");
  EXPECT_THAT(text, HasSubstr("qtrain_run_info{output_dir=\"a \\\"b\\\"\\\\\\n\",version="));
  EXPECT_THAT(text, HasSubstr("# TYPE qtrain_step gauge\nqtrain_step 12\n"));
  EXPECT_THAT(text, HasSubstr("# TYPE qtrain_tokens_total counter\nqtrain_tokens_total 3400\n"));
  EXPECT_THAT(text, HasSubstr("qtrain_loss NaN\n"));
  EXPECT_THAT(text, HasSubstr("qtrain_data_wait_ratio 0.25\n"));
  EXPECT_THAT(text, Not(HasSubstr("qtrain_grad_norm")));
  EXPECT_TRUE(text.ends_with("\n"));
}

TEST(PrometheusText, HasNoControlCharactersInLabels) {
  const std::string text = prometheus_text({},
                                           "a\r\x1b[2J\t\x7f\xff\xc2\x85"
                                           "b");
  EXPECT_THAT(text, HasSubstr(R"({output_dir="a\\x0d\\x1b[2J \\x7f\\xff\\u0085b",version=)"));
}

}  // namespace
}  // namespace qtrain
