// Writes the data of the example: questions about people, films, companies and books with the Cypher query that answers
// each; held-out rows twice, from two seeds. The same bytes on every run. Usage: cypher_dataset --output DIR [--seed N]
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/formats/json.h"
#include "core/log.h"
#include "core/os/file.h"
#include "examples/cypher/entities.h"
#include "examples/cypher/shapes.h"
#include "examples/program.h"

namespace qtrain::cypher {
namespace {

constexpr std::size_t kTrainingRows = 3000, kHeldOutRows = 200, kShownRows = 5;
constexpr std::string_view kSystem = "Translate to Cypher.";

struct Options {
  std::filesystem::path output;
  std::uint64_t seed = 2024;
};

struct Row {
  std::string question, query;
};

/// The shapes to draw rows from, in turn.
using Turns = std::vector<const Shape*>;
Turns each_once() {
  Turns turns;
  for (const Shape& shape : kShapes) turns.push_back(&shape);
  return turns;
}
Turns by_share() {
  Turns turns;
  for (const Shape& shape : kShapes) turns.insert(turns.end(), shape.share, &shape);
  return turns;
}

/// Draws rows. Questions are never repeated, and neither are reserved queries: a held-out query is not in the training
/// rows under any wording.
class Generator {
 public:
  explicit Generator(std::uint64_t seed) : draw_(seed) {}

  std::vector<Row> rows(std::size_t count, const Turns& turns) {
    std::vector<Row> out;
    while (out.size() < count) out.push_back(fresh_row(*turns[out.size() % turns.size()]));
    for (std::size_t i = count; i > 1; --i) std::swap(out[i - 1], out[draw_.below(i)]);
    return out;
  }

  void reserve(const std::vector<Row>& rows) {
    for (const Row& row : rows) reserved_.insert(row.query);
  }

 private:
  Row fresh_row(const Shape& shape) {
    for (;;) {
      const Slots slots = draw_slots(draw_);
      Row row{fill(draw_.one_of(shape.questions), slots), fill(shape.query, slots)};
      if (!reserved_.contains(row.query) && asked_.insert(row.question).second) return row;
    }
  }

  Draw draw_;
  std::set<std::string> asked_, reserved_;
};

Json turn(std::string_view role, std::string_view content) {
  return {{"role", role}, {"content", content}};
}

std::string chat_lines(const std::vector<Row>& rows) {
  std::string text;
  for (const Row& row : rows) {
    const Json messages = {turn("system", kSystem), turn("user", row.question), turn("assistant", row.query)};
    text += dump_json(Json{{"messages", messages}}) + "\n";
  }
  return text;
}

/// A few held-out questions without their answers, for asking a model before and after training.
std::string question_lines(const std::vector<Row>& rows) {
  std::string text;
  for (std::size_t i = 0; i < kShownRows; ++i) {
    const Json prompt = {turn("system", kSystem), turn("user", rows[i].question)};
    text += dump_json(Json{{"messages", prompt}, {"expected", rows[i].query}}) + "\n";
  }
  return text;
}

Options parse(const std::vector<std::string>& arguments) {
  Options options;
  for (std::size_t i = 0; i + 1 < arguments.size(); i += 2) {
    const std::string &name = arguments[i], &value = arguments[i + 1];
    if (name == "--output") {
      options.output = value;
    } else if (name == "--seed") {
      const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), options.seed);
      if (error != std::errc{} || end != value.data() + value.size())
        fail(ErrorKind::usage, {.cause = fmt::format("--seed needs a number, not '{}'", value)});
    } else {
      fail(ErrorKind::usage, {.cause = fmt::format("unknown option '{}'", name)});
    }
  }
  if (options.output.empty() || arguments.size() % 2 != 0)
    fail(ErrorKind::usage, {.cause = "no output folder", .remedy = "Usage: cypher_dataset --output DIR [--seed N]"});
  return options;
}

void write_dataset(const Options& options, Log& log) {
  Generator generator(options.seed);
  const std::vector<Row> held_out = generator.rows(kHeldOutRows, each_once());
  const std::vector<Row> others = Generator(options.seed + 1).rows(kHeldOutRows, each_once());
  generator.reserve(held_out);
  generator.reserve(others);
  const std::vector<Row> training = generator.rows(kTrainingRows, by_share());
  std::filesystem::create_directories(options.output);
  write_file(options.output / "train.jsonl", chat_lines(training));
  write_file(options.output / "eval.jsonl", chat_lines(held_out));
  write_file(options.output / "eval_other_seed.jsonl", chat_lines(others));
  write_file(options.output / "questions.jsonl", question_lines(held_out));
  log.info("{} training and {} held-out rows of {} shapes in {}", training.size(), held_out.size(), kShapes.size(),
           options.output.string());
}

}  // namespace
}  // namespace qtrain::cypher

int main(int argc, char** argv) {
  return qtrain::run_program(argc, argv, [](const auto& arguments, qtrain::Log& log) {
    qtrain::cypher::write_dataset(qtrain::cypher::parse(arguments), log);
  });
}
