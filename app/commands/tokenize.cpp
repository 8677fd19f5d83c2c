#include <fstream>
#include <functional>
#include <iostream>

#include "app/commands/commands.h"
#include "core/os/paths.h"
#include "core/os/stop.h"
#include "data/source/raw_rows.h"
#include "model/model_source.h"
#include "text/tokenizer/load.h"
#include "text/tokenizer/tokenizer.h"

namespace qtrain {
namespace {

Json encode_line(const Tokenizer& tokenizer, const Json& value, const Arguments& args) {
  if (!value.is_string()) fail(ErrorKind::input, {.cause = "expected one JSON string per line"});
  return tokenizer.encode(value.get<std::string>(), {.add_special = !args.has("no_special")});
}

Json decode_line(const Tokenizer& tokenizer, const Json& value, const Arguments& args) {
  if (!value.is_array()) fail(ErrorKind::input, {.cause = "expected one JSON array of token ids per line"});
  std::vector<std::int32_t> ids;
  for (const Json& id : value) {
    if (!id.is_number_integer() || id < 0 || id >= tokenizer.size())
      fail(ErrorKind::input,
           {.cause = "token id " + id.dump() + " is outside the vocabulary of " + std::to_string(tokenizer.size())});
    ids.push_back(id.get<std::int32_t>());
  }
  return tokenizer.decode(ids, {.skip_special = args.has("no_special")});
}

void each_line(std::istream& in, const std::string& name,
               const std::function<void(const std::string&, const std::string&)>& f) {
  std::int64_t number = 0;
  for (std::string line; std::getline(in, line);) {
    ++number;
    if (line.find_first_not_of(" \t\r") != std::string::npos) f(line, name + ":" + std::to_string(number));
  }
  if (in.bad()) fail(ErrorKind::input, {.cause = "cannot be read to the end", .place = name});
}

}  // namespace

int run_tokenize(const Arguments& args) {
  const auto tokenizer = load_tokenizer(text_folder(args.required("model")));
  Json all = Json::array();
  const auto convert = [&](const std::string& line, const std::string& place) {
    const Json value = parse_json(line, place);
    Json converted = with_place(place, [&] {
      return args.has("decode") ? decode_line(*tokenizer, value, args) : encode_line(*tokenizer, value, args);
    });
    args.log().result_stream(written_result(dump_json(converted) + "\n", ResultText::data));
    if (args.json()) all.push_back(std::move(converted));
  };
  if (const auto file = args.text("input")) {
    if (!is_plain_file(*file)) fail(ErrorKind::input, {.cause = "no such file", .place = *file});
    std::ifstream in(*file);
    if (!in) fail(ErrorKind::input, {.cause = "cannot be read", .place = *file});
    each_line(in, *file, convert);
  } else {
    each_line(std::cin, "standard input", convert);
    throw_if_stopped();
  }
  args.give({.text = "", .json = std::move(all)});
  return 0;
}

}  // namespace qtrain
