/** A chat answer in one piece: collected, counted, settled, then sent. */
import type { Settlement } from '../billing/ledger/ledger.ts';
import type { EngineAnswer } from '../engines/engines.ts';
import type { AnswerBlocks } from './agents/answer-blocks.ts';
import { WholeChatCall } from './chat-call.ts';
import {
  answerBlocks,
  answerEnd,
  billOf,
  type ChatRun,
  chatFault,
  endRound,
  endUnseen,
  factsOf,
  noteBill,
  outcomeOf,
  searchRound,
  showPrepared,
  showSearches,
} from './chat-run.ts';
import { type ChatAnswer, writeChatAnswer } from './wire/chat-response.ts';
import { type HeldRound, heldRoundOf, joinedAnswer } from './wire/held-calls.ts';

const JSON_TYPE = 'application/json; charset=utf-8';

export async function wholeAnswer(run: ChatRun): Promise<void> {
  const { parts, context, additions, cancellation } = run;
  const tool = additions.autoSearch?.toolName;
  const earlier: HeldRound[] = [];
  const blocks = run.protocol && answerBlocks(run, run.protocol);
  if (blocks !== undefined) showPrepared(run, blocks);
  for (;;) {
    const call = new WholeChatCall(run);
    const answer = await parts.engines.collect(call);
    if (!answer.ok) {
      if (answer.reason !== 'aborted') throw chatFault(run, answer);
      endUnseen(run, answer);
      return settleAborted(run, answer.replica?.engine);
    }
    const { read } = call;
    if (read === undefined) throw new Error('A usable answer was read');
    run.cited = read.cited;
    endRound(run, { reported: read.reported, tally: read.tally, extent: 'whole' }, answer);
    if (tool === undefined) return send(call, read, answer, blocks);
    const held = heldRoundOf(read, tool);
    if (held === undefined || run.round.searches === 0) {
      return send(call, joinedAnswer(read, tool, earlier), answer, blocks);
    }
    const shown = additions.autoSearch?.searches.length ?? 0;
    if (blocks === undefined) earlier.push(held);
    else blocks.choice({ delta: { content: held.content, reasoning_content: held.reasoning } });
    try {
      await searchRound(run, held);
    } catch (error) {
      // The caller left during the search; anything else is a bug.
      if (!cancellation.aborted) throw error;
      parts.log.debug({ requestId: context.requestId }, 'The caller left during a search');
      return settleAborted(run, answer.replica.engine);
    }
    if (blocks === undefined) continue;
    showSearches(run, blocks, shown);
    blocks.nextRound();
  }
}

/** Settles, and only then sends. */
async function send(
  { run, options }: WholeChatCall,
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
    return { type: JSON_TYPE, body: writeChatAnswer(read, options, end) };
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
