/** A chat answer in one piece: collected, counted, settled, then sent. */
import type { EngineAnswer, EngineFailure, EngineOutcome } from '../engines/engines.ts';
import { formatUsd, toUsdNumber } from '../core/money.ts';
import type { Settlement } from '../billing/ledger/ledger.ts';
import {
  type ChatAnswer,
  chatCompletionId,
  readChatAnswer,
  writeChatAnswer,
} from './wire/chat-response.ts';
import { type HeldRound, heldRoundOf, joinedAnswer } from './wire/held-calls.ts';
import { noOutput } from './wire/chat-choice.ts';
import type { AnswerFacts } from '../http/answer-facts.ts';
import { engineFault, saysContextOverflow } from '../engines/engine-refusal.ts';
import type { ChatBill, RoundEnd } from './chat-bill.ts';
import { contextOverflow } from './chat-bounds.ts';
import type { ChatRun } from './chat-run.ts';
import { engineCall, flagsOf } from './engine-call.ts';

export async function wholeAnswer(run: ChatRun): Promise<void> {
  const { parts, call, additions, rounds } = run;
  const tool = additions.autoSearch?.toolName;
  const earlier: HeldRound[] = [];
  for (;;) {
    const { read, answer } = await runRound(run);
    if (!answer.ok) {
      if (answer.reason !== 'aborted') throw chatFault(run, answer);
      endUnseen(run, answer);
      return settleAborted(run, answer.replica?.engine);
    }
    if (read === undefined) throw new Error('A usable answer was read');
    endRound(run, { reported: read.reported, tally: read.tally, extent: 'whole' }, answer);
    const held = tool === undefined ? undefined : heldRoundOf(read, tool);
    if (tool === undefined) return send(run, read, answer);
    if (held === undefined || rounds.current.searches === 0) {
      return send(run, joinedAnswer(read, tool, earlier), answer);
    }
    earlier.push(held);
    try {
      await rounds.search(held, call.signal);
    } catch (error) {
      // The caller left during the search; anything else is a bug.
      if (!call.signal.aborted) throw error;
      parts.log.debug({ requestId: call.requestId }, 'The caller left during a search');
      return settleAborted(run, answer.replica.engine);
    }
  }
}

async function runRound(run: ChatRun) {
  let read: ChatAnswer | undefined;
  const answer = await run.parts.engines.collect({
    ...engineCall(run),
    // An answer that is cut or no chat completion is the engine's failure: another replica may do better.
    isUsable: (body) => {
      read = readUsable(body, run);
      return read !== undefined;
    },
  });
  return { read, answer };
}

/** Settles, and only then sends. */
async function send(run: ChatRun, read: ChatAnswer, answer: EngineAnswer): Promise<void> {
  const { call, rounds } = run;
  const bill = rounds.bill();
  const finished = { run, read, bill, answer };
  const { receiver } = call;
  const sold = await run.admission.answer(
    {
      costNano: bill.costNano,
      status: 'completed',
      tokens: bill.tokens,
      countedBy: bill.countedBy,
      attempts: rounds.attempts,
      replica: answer.replica.engine,
      firstTokenMs: answer.firstByteMs,
      extras: rounds.extras(),
    },
    (settled) => receiver.answered(headOf(finished, settled), bodyOf(finished, settled)),
  );
  note(run, bill, answer.replica.engine);
  await receiver.whole(sold);
}

interface Finished {
  readonly run: ChatRun;
  readonly read: ChatAnswer;
  readonly bill: ChatBill;
  readonly answer: EngineAnswer;
}

function bodyOf({ run, read, bill }: Finished, settlement: Settlement): Buffer {
  const { parts, request, call, model, rounds } = run;
  const { documents } = rounds;
  return writeChatAnswer(read, {
    id: chatCompletionId(call.requestId),
    model: model.id,
    createdS: Math.floor(parts.clock.nowMs() / 1_000),
    usage: bill.usage,
    cost: { usd: toUsdNumber(settlement.usdNano), diem: toUsdNumber(settlement.diemNano) },
    serviceName: parts.serviceName,
    parameters: request.parameters,
    citations: rounds.citations,
    documents,
  });
}

function headOf({ run, answer }: Finished, settlement: Settlement): AnswerFacts {
  return {
    model: run.model,
    deprecation: run.deprecation,
    admission: run.admission,
    rate: run.rate,
    replica: answer.replica.engine,
    attempts: answer.attempts,
    flags: flagsOf(answer.head, run.parts.serviceName),
    remainingNano: settlement.after.usdNano,
  };
}

function readUsable(body: Buffer, run: ChatRun): ChatAnswer | undefined {
  const { parameters } = run.request;
  try {
    return readChatAnswer(body, {
      stripThinkTags: parameters.strip_thinking_response || parameters.disable_thinking,
      dropReasoning: parameters.disable_thinking,
      choiceCount: run.request.choiceCount,
      maxOutputTokens: run.rounds.current.outputTokens,
    });
  } catch {
    // The engines' door reports it as `garbage` when no replica gives a usable answer.
    return undefined;
  }
}

/** The caller left before the answer. */
async function settleAborted(run: ChatRun, replica: string | undefined): Promise<void> {
  const { rounds } = run;
  const bill = rounds.bill();
  await run.admission.settle({
    costNano: bill.costNano,
    status: 'aborted',
    tokens: bill.tokens,
    countedBy: bill.countedBy,
    attempts: rounds.attempts,
    ...(replica === undefined ? {} : { replica }),
    extras: rounds.extras(),
  });
  note(run, bill, replica);
}

/** Who was asked, and how often. */
export type Attempted = Pick<EngineOutcome, 'attempts' | 'replica'>;

/** Notes what a round used, and in the log when its engine said what cannot be. */
export function endRound(run: ChatRun, end: RoundEnd, outcome: Attempted): void {
  const { isImpossible } = run.rounds.ended(end, outcome.attempts);
  if (!isImpossible) return;
  const { promptTokens, completionTokens } = end.reported?.usage ?? {};
  const said = { replica: outcome.replica?.engine, promptTokens, completionTokens };
  run.parts.log.warn(
    { requestId: run.call.requestId, ...said },
    'An engine reported more tokens than it can have used; it is not believed',
  );
}

/** The caller left before any text: what an engine had to read is billed. */
export function endUnseen(run: ChatRun, outcome: Attempted, reported?: RoundEnd['reported']): void {
  // A call that still waited for an engine has made no work.
  const extent = outcome.attempts > 0 ? 'unseen' : 'partial';
  endRound(run, { reported, tally: noOutput(), extent }, outcome);
}

/** The failure of an engine in words for the caller. */
export function chatFault(run: ChatRun, failure: EngineFailure): Error {
  if (saysContextOverflow(failure)) return contextOverflow(run.model, undefined);
  return engineFault(failure, run.model.id);
}

export function note(run: ChatRun, bill: ChatBill, replica: string | undefined): void {
  run.call.note({
    costUsd: formatUsd(bill.costNano),
    promptTokens: bill.tokens.prompt,
    completionTokens: bill.tokens.completion,
    ...(replica === undefined ? {} : { replica }),
  });
}
