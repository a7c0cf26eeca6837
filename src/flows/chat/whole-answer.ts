/** A chat answer in one piece: collected, counted, settled, then sent. */
import type { EngineAnswer, EngineFailure } from '../../engines/engines.ts';
import { formatUsd, toUsdNumber } from '../../kernel/money.ts';
import type { Settlement } from '../../ledger/ledger.ts';
import {
  type ChatAnswer,
  chatCompletionId,
  readChatAnswer,
  writeChatAnswer,
} from '../../wire/chat-response.ts';
import { echoParameters } from '../../wire/svc-parameters.ts';
import { engineFault, saysContextOverflow } from '../engine-refusal.ts';
import { type ChatBill, billChat } from './chat-bill.ts';
import { contextOverflow } from './chat-bounds.ts';
import type { ChatHead, ChatRun } from './chat-run.ts';
import { engineCall, flagsOf } from './engine-call.ts';

const NO_OUTPUT = { contentBytes: 0, reasoningBytes: 0, toolBytes: 0, deltas: 0 };

export async function wholeAnswer(run: ChatRun): Promise<void> {
  const { parts, call } = run;
  let read: ChatAnswer | undefined;
  const answer = await parts.engines.collect({
    ...engineCall(run),
    // An answer that is cut or no chat completion is the engine's failure: another replica may do better.
    isUsable: (body) => {
      read = readUsable(body, run);
      return read !== undefined;
    },
  });
  if (!answer.ok) {
    if (answer.reason === 'aborted') return settleAborted(run, answer);
    throw chatFault(run, answer);
  }
  if (read === undefined) throw new Error('A usable answer was read');
  const bill = billOf(run, read);
  const finished = { run, read, bill, answer };
  const { keep } = call.receiver;
  const settlement = await parts.charge.settle(
    run.admission,
    {
      costNano: bill.costNano,
      status: 'completed',
      tokens: bill.tokens,
      countedBy: bill.countedBy,
      attempts: answer.attempts,
      replica: answer.replica.engine,
      firstTokenMs: answer.firstByteMs,
      extras: run.additions.extras,
    },
    keep === undefined
      ? undefined
      : (tx, settled) => keep(tx, headOf(finished, settled), bodyOf(finished, settled)),
  );
  note(run, bill, answer.replica.engine);
  await call.receiver.whole(headOf(finished, settlement), bodyOf(finished, settlement));
}

interface Finished {
  readonly run: ChatRun;
  readonly read: ChatAnswer;
  readonly bill: ChatBill;
  readonly answer: EngineAnswer;
}

function bodyOf({ run, read, bill }: Finished, settlement: Settlement): Buffer {
  const { parts, request, call, model } = run;
  return writeChatAnswer(read, {
    id: chatCompletionId(call.requestId),
    model: model.id,
    createdS: Math.floor(parts.clock.nowMs() / 1_000),
    usage: bill.usage,
    cost: { usd: toUsdNumber(settlement.usdNano), diem: toUsdNumber(settlement.diemNano) },
    serviceName: parts.serviceName,
    parameters: echoParameters(request.parameters, run.additions.citations),
    ...(run.additions.documents === undefined ? {} : { documents: run.additions.documents }),
  });
}

function headOf({ run, answer }: Finished, settlement: Settlement): ChatHead {
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
    });
  } catch {
    // The engines' door reports it as `garbage` when no replica gives a usable answer.
    return undefined;
  }
}

function billOf(run: ChatRun, read: Pick<ChatAnswer, 'usage' | 'tally'>): ChatBill {
  return billChat({
    usage: read.usage,
    tally: read.tally,
    bounds: run.bounds,
    choiceCount: run.request.choiceCount,
    promptBytes: run.request.facts.textBytes + run.additions.textBytes,
    price: requirePriceOf(run),
    surchargesNano: run.additions.surchargeNano,
  });
}

/** The caller left before the answer: what the engine had to read is billed. */
async function settleAborted(run: ChatRun, failure: EngineFailure): Promise<void> {
  const bill = billOf(run, { usage: undefined, tally: { ...NO_OUTPUT, deltas: 1 } });
  await run.parts.charge.settle(run.admission, {
    costNano: bill.costNano,
    status: 'aborted',
    tokens: bill.tokens,
    countedBy: bill.countedBy,
    attempts: failure.attempts,
    ...(failure.replica === null ? {} : { replica: failure.replica.engine }),
    extras: run.additions.extras,
  });
  note(run, bill, failure.replica?.engine);
}

/** The failure of an engine in words for the caller. */
export function chatFault(run: ChatRun, failure: EngineFailure): Error {
  if (saysContextOverflow(failure)) return contextOverflow(run.model, undefined);
  return engineFault(failure, run.model.id);
}

export function requirePriceOf(run: ChatRun) {
  const { price } = run.model;
  if (price === undefined) throw new Error('An admitted model has a price');
  return price;
}

export function note(run: ChatRun, bill: ChatBill, replica: string | undefined): void {
  run.call.note({
    costUsd: formatUsd(bill.costNano),
    promptTokens: bill.tokens.prompt,
    completionTokens: bill.tokens.completion,
    ...(replica === undefined ? {} : { replica }),
  });
}
