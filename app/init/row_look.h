#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "data/row_shapes.h"
#include "data/source/raw_rows.h"

namespace qtrain::init {

/// How the rows of a data set are read.
struct RowLook {
  RowShape shape = RowShape::text;
  std::string name;                        ///< of the shape, as listings show it
  Json settings = Json::object();          ///< keys of the config that map the columns
  std::vector<std::string> unread = {};    ///< columns with texts that nothing reads
  std::vector<std::string> warnings = {};  ///< about rows of other shapes
};

/// Recognizes the shape of a row, by the names of its columns if it has none of the known ones. `has_template`: whether
/// the model has a chat template. Throws ErrorKind::input as read_sample does.
enum class ChatTemplates : std::uint8_t { none, some };
/// `text_field`: the column of texts that the user gives; empty for none.
RowLook look_at_row(const Json& row, ChatTemplates templates, const std::string& text_field = {});

/// The look with which most of up to 200 rows, spread evenly, are read; throws only if no row can be.
RowLook look_at_rows(const RawRows& rows, ChatTemplates templates, const std::string& text_field = {});
/// Why a look has this value for a key of its settings.
std::string reason_of(const std::string& key, const Json& value);
/// "the columns a and b are not read"; empty if all are.
std::string names_of_unread(const RowLook& look);

/// Up to `most` rows, spread evenly.
RawRows spread_rows(const RawRows& rows, std::int64_t most);

/// Up to `most` questions of these rows that a text alone expresses, for sample_prompts.
std::vector<std::string> short_questions(const RawRows& rows, const ShapeRules& rules, std::size_t most);

}  // namespace qtrain::init
