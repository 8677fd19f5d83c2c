// Runs single cases (bench/cases), each in its own process.
//   bench_cases --list                       lists the cases that --run accepts, and how this program was built
//   bench_cases --run NAME                   runs a case on one thread: once to warm up, once inside `qtrain_counted`,
//                                            whose instructions bench/compare_baselines.py counts with callgrind
//   bench_cases --tokenize FOLDER FILE       tokenizes a file of JSON strings, one per line, with a model folder's
//                                            tokenizer; prints CPU seconds and the number of tokens as JSON
#include <cstdio>
#include <ctime>
#include <fstream>
#include <string>

#include "bench/cases/measure.h"
#include "core/error.h"
#include "core/formats/json.h"
#include "kernels/cpu/isa.h"
#include "text/tokenizer/load.h"
#include "text/tokenizer/tokenizer.h"

/// Not inlined and with C linkage, so that profilers find it.
extern "C" __attribute__((noinline)) void qtrain_counted(const std::function<void()>& run) {
  run();
}

namespace qtrain::bench {
namespace {

std::vector<Case> counted_cases() {
  std::vector<Case> cases = all_cases(counted_sizes());
  cases.push_back(copy_case(counted_sizes()));
  cases.push_back(gemm_case(counted_sizes()));
  return cases;
}

void list() {
  Json names = Json::array();
  for (const Case& c : counted_cases()) names.push_back(c.name);
  const Json document{{"compiler", QTRAIN_BENCH_COMPILER},
                      {"flags", QTRAIN_BENCH_FLAGS},
                      {"cpu", describe_cpu()},
                      {"cases", std::move(names)}};
  std::printf("%s\n", dump_json(document, 2).c_str());
}

int run(const std::string& name) {
  for (const Case& c : counted_cases())
    if (c.name == name) {
      Ctx ctx({}, MatmulPrecision::storage, 1);
      run_once(ctx, c, qtrain_counted);
      return 0;
    }
  std::fprintf(stderr, "unknown case %s; bench_cases --list shows all cases\n", name.c_str());
  return 2;
}

void tokenize(const std::string& folder, const std::string& file) {
  const auto tokenizer = load_tokenizer(folder);
  std::ifstream in(file);
  std::vector<std::string> texts;
  for (std::string line; std::getline(in, line);) texts.push_back(parse_json(line, file).get<std::string>());
  const std::clock_t begin = std::clock();
  std::size_t tokens = 0;
  for (const std::string& text : texts) tokens += tokenizer->encode(text).size();
  const double seconds = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
  std::printf("%s\n", dump_json({{"seconds", seconds}, {"tokens", tokens}}).c_str());
}

int answer(const std::vector<std::string>& words) {
  if (words == std::vector<std::string>{"--list"}) return list(), 0;
  if (words.size() == 2 && words[0] == "--run") return run(words[1]);
  if (words.size() == 3 && words[0] == "--tokenize") return tokenize(words[1], words[2]), 0;
  std::fprintf(stderr, "usage: bench_cases --list | --run NAME | --tokenize FOLDER FILE.jsonl\n");
  return 2;
}

}  // namespace
}  // namespace qtrain::bench

int main(int argc, char** argv) {
  try {
    return qtrain::bench::answer({argv + 1, argv + argc});
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
