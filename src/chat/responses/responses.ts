/**
 * The Responses protocol: `POST /responses`, translated to the chat run, and the routes of stored
 * responses.
 */
import type * as z from 'zod';
import { Fault } from '../../core/faults.ts';
import { type ReadLargeJson, readJson, readQuery } from '../../http/read-request.ts';
import type { RequestContext } from '../../http/request-context.ts';
import { JSON_BODY, type Route, get, remove } from '../../http/route.ts';
import { childrenOf, type JsonObject } from '../../json/json-scan.ts';
import type { ResponseProtocol } from '../agents/response-protocol.ts';
import type { ChatParts } from '../chat-plan.ts';
import { sellChat } from '../admission.ts';
import { passedBytes } from '../upstream/responses/passed-request.ts';
import { ResponsePass } from '../upstream/responses/response-pass.ts';
import { passableRequest, passingOf } from '../upstream/upstream.ts';
import { promptTokensAbout } from '../wire/prompt-facts.ts';
import { responsesErrors } from './response-errors.ts';
import { ResponsesBody } from './request-schema.ts';
import {
  fixedMembers,
  ResponseWriter,
  type ResponseWriterOptions,
  type TurnKeeper,
} from './response-writer.ts';
import {
  DELETE_RESPONSE_DESCRIPTION,
  GET_RESPONSE_DESCRIPTION,
  INPUT_ITEMS_DESCRIPTION,
  INPUT_TOKENS_DESCRIPTION,
  InputItemsQuery,
  RESPONSES_DESCRIPTION,
  StoredQuery,
} from './describe.ts';
import { MAX_TURN_BYTES, type StoredTurn, type StoredTurns } from './stored-turns.ts';
import { readTurn, responseIdOf, type Turn } from './turn.ts';

export { RESPONSES_MIGRATIONS } from './migrations.ts';
export { StoredTurns } from './stored-turns.ts';

interface ResponsesParts {
  readonly chat: ChatParts;
  readonly turns: StoredTurns;
  readonly readLarge: ReadLargeJson;
}

const SEALED_REASONING = 'reasoning.encrypted_content';
const CALL_ID_BYTES = 12;
/** Members that an engine may omit until its response has ended. */
const NOT_ENDED = { completed_at: null, error: null, incomplete_details: null, usage: null };

export function responsesRoutes(parts: ResponsesParts): Route[] {
  const { turns } = parts;
  const routes: Route[] = [
    {
      method: 'POST',
      path: '/responses',
      auth: 'key-or-wallet',
      about: 'Responses',
      body: JSON_BODY,
      sells: 'chat',
      describe: RESPONSES_DESCRIPTION,
      handle: (context) => respond(parts, context),
    },
    {
      method: 'POST',
      path: '/responses/input_tokens',
      auth: 'key-or-wallet',
      body: JSON_BODY,
      describe: INPUT_TOKENS_DESCRIPTION,
      handle: async (context) => {
        const input_tokens = promptTokensAbout((await turnOf(parts, context)).request);
        await context.json(200, { object: 'response.input_tokens', input_tokens });
      },
    },
    get('/responses/:id', 'key-or-wallet', GET_RESPONSE_DESCRIPTION, async (context) => {
      readQuery(context, StoredQuery);
      await context.json(200, (await storedTurn(turns, context)).response);
    }),
    remove('/responses/:id', 'key-or-wallet', DELETE_RESPONSE_DESCRIPTION, async (context) => {
      const id = idOf(context);
      if (!(await turns.remove(id, context.caller.accountId))) throw notFound(id);
      await context.json(200, { id, object: 'response', deleted: true });
    }),
    get('/responses/:id/input_items', 'key-or-wallet', INPUT_ITEMS_DESCRIPTION, async (context) => {
      const query = readQuery(context, InputItemsQuery);
      const { id, input } = await storedTurn(turns, context);
      await context.json(200, itemList(id, input, query));
    }),
  ];
  return routes.map((route) => ({ ...route, errors: responsesErrors }));
}

async function respond(parts: ResponsesParts, context: RequestContext): Promise<void> {
  const turn = await turnOf(parts, context);
  const keeper = await keeperOf(parts, context, turn);
  const { model } = parts.chat.catalog.resolve(turn.body.model, 'text') ?? {};
  const passing = passingOf(parts.chat.dialects, model, 'responses');
  const pass = passing && passOf(parts, context, turn, keeper);
  const request = passing
    ? passableRequest(turn.request, untranslatedBytes(turn), passing)
    : turn.request;
  await sellChat(parts.chat, context, request, protocolOf(parts, context, turn, { keeper, pass }));
}

async function turnOf({ chat, turns, readLarge }: ResponsesParts, context: RequestContext) {
  const body = await readJson(context, ResponsesBody, readLarge);
  return readTurn({ ...chat, turns }, body, context.caller.accountId);
}

function protocolOf(
  { chat }: ResponsesParts,
  context: RequestContext,
  turn: Turn,
  kept: Pick<ResponseWriterOptions, 'keeper' | 'pass'>,
): ResponseProtocol {
  const { ids, clock, sealer } = chat;
  const { accountId } = context.caller;
  const isSealed = turn.body.include?.includes(SEALED_REASONING) === true;
  return {
    name: 'responses',
    maxSearches: turn.body.max_tool_calls ?? undefined,
    takenCallIds: turn.callIds,
    newCallId: () => `call_${ids.hex(CALL_ID_BYTES)}`,
    passThrough: kept.pass,
    writer: (frame) =>
      new ResponseWriter({
        turn,
        frame,
        ...kept,
        seal: (text) => sealer.seal(text, accountId),
        isSealed,
        nowS: () => Math.floor(clock.nowMs() / 1_000),
      }),
  };
}

/** For engines with the protocol of this route. */
function passOf(
  { chat }: ResponsesParts,
  { body: bytes, requestId }: RequestContext,
  turn: Turn,
  keeper: TurnKeeper | undefined,
): ResponsePass {
  const { body } = turn;
  // The body was validated, and its values were not changed.
  const source = { bytes, body, members: childrenOf(bytes).spans };
  const frame = { requestId, model: body.model, createdS: Math.floor(chat.clock.nowMs() / 1_000) };
  return new ResponsePass({
    source,
    items: turn.passed,
    defaults: { ...NOT_ENDED, ...fixedMembers({ turn, frame }) },
    requestId,
    serviceName: chat.serviceName,
    fits: keeper?.fits,
  });
}

function untranslatedBytes({ request, items, passed }: Turn): number {
  return request.facts.unknownBytes + passedBytes([...passed.history, ...items]);
}

/** Returns `undefined` if the response is not to be stored, or the account has no capacity left. */
async function keeperOf(
  { chat, turns }: ResponsesParts,
  context: RequestContext,
  { body, items }: Turn,
): Promise<TurnKeeper | undefined> {
  const { accountId } = context.caller;
  if (body.store === false || !(await turns.hasCapacity(accountId))) return undefined;
  const inputJson = JSON.stringify(items);
  const inputBytes = Buffer.byteLength(inputJson);
  if (inputBytes > MAX_TURN_BYTES) return undefined;
  return {
    fits: (responseJson) => inputBytes + Buffer.byteLength(responseJson) <= MAX_TURN_BYTES,
    keep: (tx, { responseJson, status, costNano }) =>
      turns.add(tx, {
        id: responseIdOf(context.requestId),
        accountId,
        parentId: body.previous_response_id ?? undefined,
        createdMs: chat.clock.nowMs(),
        model: body.model,
        status,
        costNano,
        inputJson,
        responseJson,
      }),
  };
}

async function storedTurn(turns: StoredTurns, context: RequestContext): Promise<StoredTurn> {
  const id = idOf(context);
  const turn = await turns.get(id, context.caller.accountId);
  if (turn === undefined) throw notFound(id);
  return turn;
}

function idOf({ parameters }: RequestContext): string {
  return parameters['id'] ?? '';
}

function notFound(id: string): Fault {
  return new Fault('NOT_FOUND', {
    message: `The response ${id.slice(0, 100)} is not stored for this account or has expired`,
  });
}

/** A page of the input items; items without an id get one. */
function itemList(
  responseId: string,
  input: readonly JsonObject[],
  { limit, order, after }: z.infer<typeof InputItemsQuery>,
) {
  const digits = responseId.replace(/^resp_/, '');
  const items = input.map((item, at) => ({
    ...item,
    id: typeof item['id'] === 'string' ? item['id'] : `msg_${digits}_i${at}`,
    type: typeof item['type'] === 'string' ? item['type'] : 'message',
    ...(typeof item['content'] === 'string'
      ? { content: [{ type: 'input_text', text: item['content'] }] }
      : {}),
  }));
  if (order === 'desc') items.reverse();
  const start = after === undefined ? 0 : items.findIndex(({ id }) => id === after) + 1;
  const data = items.slice(start, start + limit);
  return {
    object: 'list',
    data,
    first_id: data[0]?.id ?? null,
    last_id: data.at(-1)?.id ?? null,
    has_more: start + limit < items.length,
  };
}
