/** A chat answer in one piece: collected, counted, settled, then sent. */
import type { Settlement } from '../billing/ledger/ledger.ts';
import type { EngineAnswer, EngineFailure } from '../engines/engines.ts';
import type { AnswerBlocks } from './agents/answer-blocks.ts';
import {
  answerBlocks,
  answerEnd,
  answerOptions,
  billOf,
  type ChatRun,
  chatFault,
  endRound,
  endUnseen,
  engineCall,
  factsOf,
  noteBill,
  outcomeOf,
  searchRound,
  showPrepared,
  showSearches,
} from './chat-run.ts';
import { type ChatAnswer, readChatAnswer, writeChatAnswer } from './wire/chat-response.ts';
import { type HeldRound, heldRoundOf, joinedAnswer } from './wire/held-calls.ts';

const JSON_TYPE = 'application/json; charset=utf-8';

export async function wholeAnswer(run: ChatRun): Promise<void> {
  const { parts, context, additions, signal } = run;
  const tool = additions.autoSearch?.toolName;
  const earlier: HeldRound[] = [];
  const blocks = run.protocol && answerBlocks(run, run.protocol);
  if (blocks !== undefined) showPrepared(run, blocks);
  for (;;) {
    const { read, answer } = await runRound(run);
    if (!answer.ok) {
      if (answer.reason !== 'aborted') throw chatFault(run, answer);
      endUnseen(run, answer);
      return settleAborted(run, answer.replica?.engine);
    }
    if (read === undefined) throw new Error('A usable answer was read');
    run.cited = read.cited;
    endRound(run, { reported: read.reported, tally: read.tally, extent: 'whole' }, answer);
    if (tool === undefined) return send(run, read, answer, blocks);
    const held = heldRoundOf(read, tool);
    if (held === undefined || run.round.searches === 0) {
      return send(run, joinedAnswer(read, tool, earlier), answer, blocks);
    }
    const shown = additions.autoSearch?.searches.length ?? 0;
    if (blocks === undefined) earlier.push(held);
    else blocks.choice({ delta: { content: held.content, reasoning_content: held.reasoning } });
    try {
      await searchRound(run, held);
    } catch (error) {
      // The caller left during the search; anything else is a bug.
      if (!signal.aborted) throw error;
      parts.log.debug({ requestId: context.requestId }, 'The caller left during a search');
      return settleAborted(run, answer.replica.engine);
    }
    if (blocks === undefined) continue;
    showSearches(run, blocks, shown);
    blocks.nextRound();
  }
}

interface RoundAnswer {
  readonly answer: EngineAnswer | EngineFailure;
  readonly read: ChatAnswer | undefined;
}

async function runRound(run: ChatRun): Promise<RoundAnswer> {
  let read: ChatAnswer | undefined;
  const answer = await run.parts.engines.collect({
    ...engineCall(run),
    // An answer that is cut or no chat completion is the engine's failure: another replica may do better.
    isUsable: (body) => {
      try {
        read = readChatAnswer(body, answerOptions(run));
        return true;
      } catch {
        // The engines report it as `garbage` when no replica gives a usable answer.
        return false;
      }
    },
  });
  return { read, answer };
}

/** Settles, and only then sends. */
async function send(
  run: ChatRun,
  read: ChatAnswer,
  answer: EngineAnswer,
  blocks: AnswerBlocks | undefined,
): Promise<void> {
  const { parts, context } = run;
  const bill = billOf(run);
  const replica = answer.replica.engine;
  const outcome = outcomeOf(run, bill, 'completed', { replica, firstTokenMs: answer.firstByteMs });
  if (blocks !== undefined) showChoice(read, blocks);
  const make = (settled: Settlement) => {
    context.setAll(parts.headers.answered(factsOf(run, answer.head, settled.after.usdNano)));
    const end = answerEnd(run, bill, settled);
    if (blocks !== undefined) return { type: JSON_TYPE, body: blocks.whole(end) };
    return { type: JSON_TYPE, body: writeChatAnswer(read, { ...answerOptions(run), ...end }) };
  };
  const { body } = await run.sale.answer(outcome, make, blocks?.together);
  noteBill(run, bill, replica);
  await context.bytes(200, JSON_TYPE, body);
}

/** The one choice of the answer as a delta that says everything. */
function showChoice({ choices: [choice] }: ChatAnswer, blocks: AnswerBlocks): void {
  if (choice === undefined) return;
  const { message, ...rest } = choice;
  blocks.choice({ ...rest, delta: message });
}

/** The caller left before the answer. */
async function settleAborted(run: ChatRun, replica: string | undefined): Promise<void> {
  const bill = billOf(run);
  const from = replica === undefined ? {} : { replica };
  await run.sale.settle(outcomeOf(run, bill, 'aborted', from));
  noteBill(run, bill, replica);
}
