/* The agreement of docs/protocol/agreement.md, small enough to look at every state of it: three sites, two candidates,
 * memories that are lost, one site that leaves, two rounds. ci/model.sh runs it; README.md says what is in it and what
 * is not. Each step names the function it stands for. With -DBREAK_x one rule is broken, and an error is there to find.
 *
 *   candidate    idle --the first promise--> preparing --rule met--> frozen --rule met by answers--> leads --> ...
 *   site         promised term; anchor; of the round after it the attempt it was sent, and what a successor settles
 *
 * Messages are not kept: a receiver reads what the sender has, at any time after it was sent, or never. So each may be
 * late or lost. What a site says, its candidate has at once; when it acts on it is open. A site hears each candidate
 * whose term is not older than the one it has promised: links, which allow less, are left out.
 */

/* ---- bounds: ci/model.sh sets them ---- */

#ifndef TERMS
#define TERMS 2 /* 2 to 4 */
#endif
#ifndef SHARED
#define SHARED 0 /* 1: each candidate may begin each term; else the first begins 1, the second 2, both what is above */
#endif
#ifndef RESTARTS
#define RESTARTS 0 /* 1: a candidate may die, forget its terms and begin one of them again */
#endif
#ifndef ATTEMPTS
#define ATTEMPTS 1 /* that a leader forms, at most 2 */
#endif
#ifndef ROUNDS
#define ROUNDS 2
#endif
#ifndef VOTERS
#define VOTERS 7 /* the membership at round 0: 7 all three; 5 the first and the third, the second may join them */
#endif
#ifndef FORGETS
#define FORGETS 1 /* so many sites, from the third on downwards, may lose their records, each once */
#endif
#ifndef LEAVES
#define LEAVES 0 /* 1: the second site may leave in good order, once, and come back; 2: the third, once it recovers */
#endif

/* ---- sets of sites are masks ---- */

#define LEAVER (LEAVES == 2 -> 2 : 1)
#define FORGETFUL (7 & ~(7 >> FORGETS))
#define BIT(s) (1 << (s))
#define HAS(set, s) (((set) >> (s)) & 1)
#define COUNT(set) (((set) & 1) + (((set) >> 1) & 1) + (((set) >> 2) & 1))
#define MAX(a, b) ((a) > (b) -> (a) : (b))

/* An attempt (Form) is one number, 0 for none, and of two the one with the higher ballot is larger. From the lowest
 * bit: the acceptors of the membership from its commit on (a bit a site: 0 the memory it began with, 1 the next), that
 * membership, the participants (3 bits each), round (2), number within the term (1), term.
 */
#define ACCEPTORS(form) ((form) & 7)
#define MEMBERS(form) (((form) >> 3) & 7)
#define PARTICIPANTS(form) (((form) >> 6) & 7)
#define ROUND(form) (((form) >> 9) & 3)
#define TERM(form) ((form) >> 12)
#define AGREED(form) ((form) & ~(7 << 6)) /* an anchor: who took part is of no use any more */
#define START (VOTERS << 3)               /* the anchor of round 0 */
/* takes_part(form, acceptor), attempt.cpp */
#define TAKES_PART(form, as) (PARTICIPANTS(form) & ~(ACCEPTORS(form) ^ (as)))

/* ---- quorum.h, of the membership as of an anchor ---- */

/* A voter that has left counts by name for good. `knows`: that the leaver's first memory has ended. */
#define LEFT(anchor, knows) ((knows) * (MEMBERS(anchor) & ~ACCEPTORS(anchor) & BIT(LEAVER)))
#define RECOVERING(anchor, as) (MEMBERS(anchor) & (ACCEPTORS(anchor) ^ (as)))
/* can_accept: more than half by name */
#ifdef BREAK_HALF
#define MOST(anchor, names) (2 * COUNT(names) >= COUNT(MEMBERS(anchor)))
#else
#define MOST(anchor, names) (2 * COUNT(names) > COUNT(MEMBERS(anchor)))
#endif
/* can_promise: and half with their records */
#ifdef BREAK_RECORDS
#define HALF(anchor, records) true
#else
#define HALF(anchor, records) (2 * COUNT(records) >= COUNT(MEMBERS(anchor)))
#endif
#define CAN_PROMISE(anchor, names, as, knows) \
  (MOST(anchor, ((names) & MEMBERS(anchor)) | LEFT(anchor, knows)) && \
   HALF(anchor, (names) & MEMBERS(anchor) & ~RECOVERING(anchor, as) & ~LEFT(anchor, knows)))

/* ---- sites: their records (wire::Record) ---- */

byte promised[3];
short anchor[3] = START;
short tried[3];         /* Acceptor::attempted_ */
byte accepted;          /* of those: whose is accepted */
short settled[3];       /* Acceptor::settled_, */
byte settled_under[3];  /* and the term */
byte acceptor;          /* which memory each has */
byte heard_parted;      /* Acceptor::member_left_: who knows that the leaver's first memory has ended */

/* ---- candidates (election.h, leadership.h) ---- */

mtype = { idle, preparing, frozen, leads };
mtype phase[2] = idle;
byte term[2];
byte here[2];           /* the memories that were there when the term was begun: `early` */
byte promises[2];       /* has_promised */
byte promised_as[2];    /* with which acceptor */
byte answers[2];        /* frozen: has_accepted; leads: who is done */
short base[2] = START;  /* the newest anchor of those who have promised; then the leader's */
short form[2];          /* preparing: the newest attempt they tell of; frozen: what is settled; leads: in flight */
byte form_under[2];     /* preparing: the last term under which it was settled, 0 for none */
bit form_accepted[2];   /* preparing: by one of them */
bit ruled_out[2];       /* preparing: one of them takes part in it, and has not accepted it */
byte formed[2];         /* attempts, in this term */
bit knows[2];           /* Voter::left, of the leaver */

/* ---- for the properties, and for what is on its way ---- */

short chosen[3];  /* by round, what was committed; 0 for nothing */
byte leaving;     /* Leave is on its way to this candidate, counted from 1 */

hidden short one;
hidden byte under;
hidden byte yes;

/* ---- a commit, and the properties ---- */

inline choose(c, names) {
  /* accepted by more than half, by name, of the membership before it */
  assert(2 * COUNT((names) & MEMBERS(base[c]) | LEFT(base[c], knows[c])) > COUNT(MEMBERS(base[c])));
  /* memberships form a chain */
  assert(base[c] == (ROUND(form[c]) == 1 -> START : chosen[ROUND(form[c]) - 1]));
  /* a round has one value */
  assert(chosen[ROUND(form[c])] == 0 || chosen[ROUND(form[c])] == AGREED(form[c]));
  chosen[ROUND(form[c])] = AGREED(form[c]);
  printf("  committed: round %d, of term %d, membership %d\n", ROUND(form[c]), TERM(form[c]), MEMBERS(form[c]));
  base[c] = AGREED(form[c]);
  form[c] = 0;
  /* With the last round agreed on, nothing that this leader says changes anything that is looked at. */
  if :: ROUND(base[c]) == ROUNDS -> reset(c) :: else fi
}

inline reset(c) {
  phase[c] = idle; here[c] = 0; promises[c] = 0; promised_as[c] = 0; answers[c] = 0; base[c] = START; form[c] = 0;
  form_under[c] = 0; form_accepted[c] = 0; ruled_out[c] = 0; formed[c] = 0; knows[c] = 0;
  if :: leaving == c + 1 -> leaving = 0 :: else fi
}

/* Whom nobody can answer any more is as good as gone: that saves states. */
inline bury(c) {
  if
  :: promised[0] > term[c] && promised[1] > term[c] && promised[2] > term[c] &&
     !(FORGETFUL & ~acceptor) && !(phase[c] == leads && form[c] && answers[c] == PARTICIPANTS(form[c])) ->
     reset(c)
  :: else
  fi
}

/* ---- election ---- */

#ifdef BREAK_RANK
#define BALLOT(form, settled_last) TERM(form)
#else
#define BALLOT(form, settled_last) MAX(settled_last, TERM(form))
#endif

/* Election::decide, the newest attempt: by the last term it was proposed under, then by its number. */
inline weigh(c, attempt, settled_last, is_accepted) {
  one = attempt; under = settled_last; yes = is_accepted;
  if
  :: one && one == form[c] ->
     form_under[c] = MAX(under, form_under[c]);
     form_accepted[c] = form_accepted[c] | yes
  :: one && one != form[c] && (BALLOT(one, under) > BALLOT(form[c], form_under[c]) ||
       BALLOT(one, under) == BALLOT(form[c], form_under[c]) && one > form[c]) ->
     form[c] = one; form_under[c] = under; form_accepted[c] = yes;
     ruled_out[c] = (TAKES_PART(one, promised_as[c]) & promises[c]) != 0  /* they would have told of it */
  :: else
  fi;
  one = 0; under = 0; yes = 0
}

/* SiteMembership::on_prepare; Election::on_promise; Election::decide, as far as this record goes */
inline say_promise(s, c) {
  printf("site %d promises term %d to candidate %d\n", s, term[c], c);
  promised[s] = term[c];
  if
  :: ROUND(anchor[s]) > ROUND(base[c]) ->
     base[c] = anchor[s]; form[c] = 0; form_under[c] = 0; form_accepted[c] = 0; ruled_out[c] = 0; knows[c] = 0
  :: else
  fi;
  if
  :: ROUND(anchor[s]) == ROUND(base[c]) ->
     knows[c] = knows[c] | HAS(heard_parted, s);
     weigh(c, tried[s], 0, HAS(accepted, s));
     weigh(c, settled[s], settled_under[s], 1)
  :: else
  fi;
  if
  :: form[c] && HAS(TAKES_PART(form[c], acceptor), s) && !(tried[s] == form[c] && HAS(accepted, s)) &&
     settled[s] != form[c] -> ruled_out[c] = 1
  :: else
  fi;
  if :: form_under[c] -> form_accepted[c] = 0; ruled_out[c] = 0 :: else fi;  /* not looked at */
  promises[c] = promises[c] | BIT(s);
  promised_as[c] = promised_as[c] | (acceptor & BIT(s))
}

/* Election::begin, with the first promise; before that a candidate that leads has stepped down (or has died). Each
 * memory that there is by now may be here. */
inline begin(s, c, number) {
  d_step { promised[s] < number && (RESTARTS || term[c] < number) ->
    reset(c);
    phase[c] = preparing; term[c] = number; here[c] = acceptor;
    say_promise(s, c);
    bury(1 - c)
  }
}

#define NEWER(a, b) (ROUND(a) > ROUND(b) -> (a) : (b))
#ifdef BREAK_LATE
#define LATE(anchor, c) 0
#else
/* Election::is_late, AgreedMembership::presence_of: recovering, and not here when the term was begun */
#define LATE(anchor, c) (RECOVERING(anchor, acceptor) & (acceptor ^ here[c]))
#endif

/* SiteMembership::on_prepare for those who come later; a late one has the term begun anew (Election::advance) */
inline promise(s, c) {
  d_step { phase[c] == preparing && promised[s] < term[c] && !HAS(promises[c], s) &&
      !HAS(LATE(NEWER(anchor[s], base[c]), c), s) ->
    say_promise(s, c);
    bury(1 - c)
  }
}

/* Election::decide: what is settled, 0 for nothing */
#ifdef BREAK_SETTLE
#define SETTLES(c) 0
#elif defined(BREAK_ABSENT)
#define SETTLES(c) \
  ((form_under[c] || form_accepted[c] && !ruled_out[c] && !(PARTICIPANTS(form[c]) & ~promises[c])) -> form[c] : 0)
#else
#define SETTLES(c) ((form_under[c] || form_accepted[c] && !ruled_out[c]) -> form[c] : 0)
#endif

/* Election::weakest: the membership of the anchor, and that of what is settled */
#ifdef BREAK_NEXT
#define ENOUGH(c, names, settles) CAN_PROMISE(base[c], names, promised_as[c], knows[c])
#else
#define ENOUGH(c, names, settles) \
  (CAN_PROMISE(base[c], names, promised_as[c], knows[c]) && \
   (!(settles) || CAN_PROMISE(settles, names, promised_as[c], knows[c])))
#endif

#ifdef BREAK_FROZEN
#define ANSWERED(c) (form[c] -> answers[c] : promises[c])
#elif defined(BREAK_ACCEPT)
#define ANSWERED(c) (form[c] -> promises[c] : answers[c])
#else
#define ANSWERED(c) answers[c]
#endif

/* Election::lead; Leadership::lead, Leadership::inherit */
inline lead(c) {
  assert(phase[1 - c] != leads || term[1 - c] != term[c]);  /* a term has one leader */
  printf("  candidate %d leads, term %d\n", c, term[c]);
  phase[c] = leads;
  one = ANSWERED(c);
  answers[c] = 0; promises[c] = 0; promised_as[c] = 0;
  if :: form[c] -> choose(c, one) :: else fi;
  one = 0
}

/* SiteMembership::on_accept; Election::on_accepted. With the first of them Election::advance freezes the decision, with the one that
 * makes them enough it leads. */
inline accept(s, c) {
  d_step { HAS(promises[c], s) && !HAS(answers[c], s) && promised[s] == term[c] &&
      HAS(promised_as[c], s) == HAS(acceptor, s) &&
      (phase[c] == frozen || phase[c] == preparing && ENOUGH(c, promises[c], SETTLES(c))) ->
    if
    :: phase[c] == preparing ->
       form[c] = SETTLES(c);
       phase[c] = frozen; form_under[c] = 0; form_accepted[c] = 0; ruled_out[c] = 0
    :: else
    fi;
    printf("site %d accepts under term %d: the attempt of term %d (0: nothing)\n", s, term[c], TERM(form[c]));
    if :: form[c] -> settled[s] = form[c]; settled_under[s] = term[c] :: else fi;
    answers[c] = answers[c] | BIT(s);
    if :: ENOUGH(c, ANSWERED(c), form[c]) -> lead(c) :: else fi
  }
}

/* ---- attempts ---- */

/* Those of the membership that have another memory by now, while the leader still has a link with the old one. */
#define STALE(c) (MEMBERS(base[c]) & acceptor & ~ACCEPTORS(base[c]) & ~LEFT(base[c], knows[c]))
#ifdef BREAK_MEMBERSHIP
#define COUNTED START
#else
#define COUNTED base[c]
#endif

byte part, next;
bit stale;

/* Round::try_to_start, Round::start, Membership::quorum_among. Any who are enough may be ready. The membership from
 * then on: who takes part, or all three; in the last round, where it decides nothing, the one before. An attempt in
 * flight is given up. */
inline form_attempt(c) {
  atomic { phase[c] == leads && formed[c] < ATTEMPTS ->
    if :: part = 7 :: part = 3 :: part = 5 :: part = 6 :: part = 1 :: part = 2 :: part = 4 fi;
    if
    :: ROUND(base[c]) + 1 < ROUNDS && part < 7 -> next = part
    :: ROUND(base[c]) + 1 < ROUNDS -> next = 7
    :: ROUND(base[c]) + 1 == ROUNDS -> next = MEMBERS(base[c]) | part
    fi;
    if :: stale = 0 :: STALE(c) & next -> stale = 1 fi;
    d_step {
      if
      :: MOST(COUNTED, part & MEMBERS(COUNTED) & ~(stale -> 0 : LATE(COUNTED, c)) | LEFT(COUNTED, knows[c])) ->
         form[c] = term[c] << 12 | formed[c] << 11 | (ROUND(base[c]) + 1) << 9 | part << 6 | next << 3 |
                   (acceptor & ~(stale -> STALE(c) : 0) & next);
         printf("candidate %d forms an attempt at round %d with %d, membership %d\n", c, ROUND(form[c]), part, next);
         formed[c]++;
         answers[c] = 0
      :: else
      fi;
      part = 0; next = 0; stale = 0
    }
  }
}

#ifdef BREAK_PROMISE
#define FOLLOWS(s, c) true
#else
#define FOLLOWS(s, c) (promised[s] <= term[c])
#endif

/* SiteRound::on_start_attempt, Acceptor::take_part */
inline receive(s, c) {
  d_step { phase[c] == leads && HAS(TAKES_PART(form[c], acceptor), s) && tried[s] != form[c] && FOLLOWS(s, c) &&
      anchor[s] == base[c] ->
    printf("site %d is sent it\n", s);
    tried[s] = form[c]; accepted = accepted & ~BIT(s); promised[s] = MAX(promised[s], term[c])
  }
}

/* SiteRound::on_exchanged; Round::on_done */
inline done(s, c) {
  d_step { phase[c] == leads && form[c] && tried[s] == form[c] && FOLLOWS(s, c) && !HAS(answers[c], s) ->
    printf("site %d is done, for candidate %d\n", s, c);
    accepted = accepted | BIT(s); answers[c] = answers[c] | BIT(s)
  }
}

/* SiteRound::on_skipped: its leader has given up what it had accepted */
inline recess(s, c) {
  d_step { phase[c] == leads && HAS(accepted, s) && tried[s] != form[c] && FOLLOWS(s, c) && anchor[s] == base[c] ->
    printf("site %d is told that what it has accepted is given up\n", s);
    accepted = accepted & ~BIT(s)
  }
}

/* Round::finish_attempt, Round::commit */
#ifdef BREAK_DONE
#define FINISHED(c) MOST(base[c], answers[c] & MEMBERS(base[c]))
#else
#define FINISHED(c) (answers[c] == PARTICIPANTS(form[c]))
#endif
inline commit(c) {
  d_step { phase[c] == leads && form[c] && FINISHED(c) ->
    one = answers[c];
    answers[c] = 0;
    choose(c, one);
    one = 0
  }
}

/* SiteRound::on_applied, or AnchorInstallation::done for who did not take part; Acceptor::agree_on. The anchor comes with
 * the membership. */
inline learn(s, c) {
  d_step { phase[c] == leads && FOLLOWS(s, c) && ROUND(anchor[s]) < ROUND(base[c]) ->
    printf("site %d learns of round %d from candidate %d\n", s, ROUND(base[c]), c);
    anchor[s] = base[c]; promised[s] = MAX(promised[s], term[c]);
    heard_parted = heard_parted & ~BIT(s) | knows[c] << s;
    if :: ROUND(tried[s]) <= ROUND(base[c]) -> tried[s] = 0; accepted = accepted & ~BIT(s) :: else fi;
    if :: ROUND(settled[s]) <= ROUND(base[c]) -> settled[s] = 0; settled_under[s] = 0 :: else fi
  }
}

/* ---- memories that end ---- */

/* A site comes back without its record, as another acceptor ("Acceptors" in docs/protocol/agreement.md). */
inline forget(s) {
  d_step { HAS(FORGETFUL & ~acceptor, s) ->
    printf("site %d loses its record\n", s);
    acceptor = acceptor | BIT(s);
    promised[s] = 0; anchor[s] = START; tried[s] = 0; settled[s] = 0; settled_under[s] = 0;
    accepted = accepted & ~BIT(s); heard_parted = heard_parted & ~BIT(s)
  }
}

#ifdef BREAK_LEAVE
#define END_OF(memory) 0
#else
#define END_OF(memory) memory
#endif

/* SiteMembership::send_leave: its memory ends first; then Leave is on its way to the leader it follows. It may come back. */
inline leave(c) {
  d_step { phase[c] == leads && promised[LEAVER] <= term[c] && !HAS(acceptor, LEAVER) && !leaving ->
    printf("site %d leaves candidate %d\n", LEAVER, c);
    acceptor = acceptor | END_OF(BIT(LEAVER)); promised[LEAVER] = term[c]; leaving = c + 1
  }
}

/* The same of one that recovers, and counts by name: what counts for good is the memory that it has lost. It stays
 * away. */
inline leave_recovering(c) {
  d_step { phase[c] == leads && promised[LEAVER] <= term[c] && HAS(acceptor & here[c], LEAVER) &&
      HAS(RECOVERING(base[c], acceptor), LEAVER) ->
    printf("site %d, which recovers, leaves candidate %d\n", LEAVER, c);
    promised[LEAVER] = 7; leaving = c + 1
  }
}

/* Membership::on_leave, AgreedMembership::remove_voter */
inline strike(c) {
  d_step { leaving == c + 1 ->
    printf("candidate %d marks it as left\n", c);
    leaving = 0; knows[c] = 1;
    if :: HAS(PARTICIPANTS(form[c]), LEAVER) -> form[c] = 0; answers[c] = 0 :: else fi
  }
}

/* Acceptor::on_member_left */
inline parted(s, c) {
  d_step { phase[c] == leads && knows[c] && !HAS(heard_parted, s) && FOLLOWS(s, c) ->
    printf("site %d hears of it\n", s);
    heard_parted = heard_parted | BIT(s); promised[s] = MAX(promised[s], term[c])
  }
}

/* ---- who does what, in any order ---- */

#define SITE (_pid % 3)
#define CANDIDATE (_pid / 3)

active [6] proctype Link() {
  do
#if SHARED
  :: begin(SITE, CANDIDATE, 1)
  :: begin(SITE, CANDIDATE, 2)
#else
  :: begin(SITE, CANDIDATE, CANDIDATE + 1)
#endif
#if TERMS > 2
  :: begin(SITE, CANDIDATE, 3)
#endif
#if TERMS > 3
  :: begin(SITE, CANDIDATE, 4)
#endif
  :: promise(SITE, CANDIDATE)
  :: accept(SITE, CANDIDATE)
  :: receive(SITE, CANDIDATE)
  :: done(SITE, CANDIDATE)
  :: recess(SITE, CANDIDATE)
  :: learn(SITE, CANDIDATE)
#if LEAVES
  :: parted(SITE, CANDIDATE)
#endif
  od
}

active [2] proctype Leader() {
  do
  :: form_attempt(_pid - 6)
  :: commit(_pid - 6)
#if LEAVES
  :: strike(_pid - 6)
#endif
#if LEAVES == 1
  :: leave(_pid - 6)
#elif LEAVES == 2
  :: leave_recovering(_pid - 6)
#endif
  od
}

active proctype Memory() {
  do
  :: forget(2)
  :: forget(1)
  :: forget(0)
  od
}
