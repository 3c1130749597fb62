// Which links are ahead of the others.
//
// Threads: one at a time. Ownership: plain values; time is a parameter.
#pragma once

namespace collab::tcp {

// Adds up what each link of a site has still to send, and at what rate. Gives how much longer one link needs than all
// of them together, as a part of that. Below 0: the link is ahead of them. A single link is neither ahead nor behind.
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
