#include "bench/tuning_file.h"

#include "engine/tuning_file.h"
#include "engine/tuning_text.h"

namespace ranvier::bench {

TuningFile::TuningFile(const std::string& path) : file_(path, "--tune") {
  if (path == "-") return;
  before_ = engine::text_if_there(path);
  TuningTable::parse(before_, path);  // refuses what is no table
}

void TuningFile::replace(const std::vector<TuningRow>& rows) const { file_.write(engine::with_rows(before_, rows)); }

}  // namespace ranvier::bench
