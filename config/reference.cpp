#include "config/reference.h"

#include <array>

#include "config/dialect_table.h"
#include "config/fields.h"
#include "config/presets.h"
#include "optim/table.h"

namespace qtrain {
namespace {

std::string type_of(const Field& field) {
  const std::string range = field.range.text();
  return range.empty() ? field.type : field.type + ", " + range;
}

/// A table as JSON, with its rows in order.
Json table_with_rows(const DialectTable& table) {
  constexpr std::array kStatus{"translated", "ignored", "warned", "unsupported", "described"};
  Json rows = Json::array();
  for (const KeyRow& row : table.rows)
    rows.push_back({{"name", row.name},
                    {"status", kStatus[static_cast<std::size_t>(row.status)]},
                    {"about", row.about},
                    {"neutral", row.neutral},
                    {"reason", row.reason}});
  Json all = table.data;
  all.update({{"name", table.name}, {"rows", std::move(rows)}});
  return all;
}

}  // namespace

Json config_keys_json() {
  Json keys = Json::object();
  const Config defaults;
  for (const Field& f : fields())
    keys[f.name] = {{"section", f.section},
                    {"default", f.read(defaults)},
                    {"type", type_of(f)},
                    {"also", common_table().object("also").value(f.name, Json::array())},
                    {"meaning", f.doc}};
  return {{"keys", std::move(keys)}};
}

std::string config_reference() {
  const DialectTable& page = dialect_table("reference");
  Json shown = page.data;
  shown.update(config_keys_json());
  shown.update(presets_json());
  shown["optimizers"] = available_optimizers();
  shown["unavailable"] = Json::array();
  for (const std::string_view name : optimizer_names())
    if (find_optimizer(name)->rule.empty()) shown["unavailable"].push_back(name);
  for (const DialectTable* table : dialects()) shown["tables"].push_back(table_with_rows(*table));
  return filled(page.text("page"), shown);
}

}  // namespace qtrain
