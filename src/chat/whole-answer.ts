/** A chat answer in one piece: collected, counted, settled, then sent. */
import type { EngineAnswer, EngineFailure } from '../engines/engines.ts';
import {
  answerEnd,
  billOf,
  type ChatRun,
  chatFault,
  documentsFor,
  endRound,
  endUnseen,
  engineCall,
  factsOf,
  noteBill,
  outcomeOf,
  searchRound,
} from './chat-run.ts';
import {
  type ChatAnswer,
  chatCompletionId,
  readChatAnswer,
  writeChatAnswer,
} from './wire/chat-response.ts';
import { type HeldRound, heldRoundOf, joinedAnswer } from './wire/held-calls.ts';

const JSON_TYPE = 'application/json; charset=utf-8';

export async function wholeAnswer(run: ChatRun): Promise<void> {
  const { parts, context, additions, signal } = run;
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
    if (tool === undefined) return send(run, read, answer);
    const held = heldRoundOf(read, tool);
    if (held === undefined || run.round.searches === 0) {
      return send(run, joinedAnswer(read, tool, earlier), answer);
    }
    earlier.push(held);
    try {
      await searchRound(run, held);
    } catch (error) {
      // The caller left during the search; anything else is a bug.
      if (!signal.aborted) throw error;
      parts.log.debug({ requestId: context.requestId }, 'The caller left during a search');
      return settleAborted(run, answer.replica.engine);
    }
  }
}

interface RoundAnswer {
  readonly answer: EngineAnswer | EngineFailure;
  readonly read: ChatAnswer | undefined;
}

async function runRound(run: ChatRun): Promise<RoundAnswer> {
  const { choiceCount, parameters } = run.request;
  let read: ChatAnswer | undefined;
  const answer = await run.parts.engines.collect({
    ...engineCall(run),
    // An answer that is cut or no chat completion is the engine's failure: another replica may do better.
    isUsable: (body) => {
      try {
        read = readChatAnswer(body, {
          stripThinkTags: parameters.strip_thinking_response || parameters.disable_thinking,
          dropReasoning: parameters.disable_thinking,
          choiceCount,
          maxOutputTokens: run.round.outputTokens,
        });
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
async function send(run: ChatRun, read: ChatAnswer, answer: EngineAnswer): Promise<void> {
  const { parts, context, model } = run;
  const bill = billOf(run);
  const replica = answer.replica.engine;
  const outcome = outcomeOf(run, bill, 'completed', { replica, firstTokenMs: answer.firstByteMs });
  const { body } = await run.admission.answer(outcome, (settled) => {
    context.setAll(parts.headers.answered(factsOf(run, answer.head, settled.after.usdNano)));
    const whole = writeChatAnswer(read, {
      id: chatCompletionId(context.requestId),
      model: model.id,
      createdS: Math.floor(parts.clock.nowMs() / 1_000),
      serviceName: parts.serviceName,
      documents: documentsFor(run),
      ...answerEnd(run, bill, settled),
    });
    return { type: JSON_TYPE, body: whole };
  });
  noteBill(run, bill, replica);
  await context.bytes(200, JSON_TYPE, body);
}

/** The caller left before the answer. */
async function settleAborted(run: ChatRun, replica: string | undefined): Promise<void> {
  const bill = billOf(run);
  const from = replica === undefined ? {} : { replica };
  await run.admission.settle(outcomeOf(run, bill, 'aborted', from));
  noteBill(run, bill, replica);
}
