// Which links are ahead of the others.
//
// Threads: one at a time. Ownership: plain values; time is a parameter.
#pragma once

namespace collab::tcp {

// Adds up the bytes that each link still has to send, and the rates of the links. behind() compares the time that one
// link needs with the time of all links together, as a relative difference. Below 0: the link is ahead. A single link
// is neither ahead nor behind.
class Remaining {
 public:
  void add(double bytes, double line) {
    if (line <= 0) return;  // not known
    bytes_ += bytes;
    lines_ += line;
  }
  [[nodiscard]] double behind(double bytes, double line) const {
    return line > 0 && bytes_ > 0 ? bytes / line / (bytes_ / lines_) - 1 : 0;
  }

 private:
  double bytes_ = 0, lines_ = 0;
};

}  // namespace collab::tcp
