/**
 * Passes a request of a Responses caller to an engine of the same protocol, and its response back.
 * The state is this server's: the engine gets the conversation as input and stores nothing, and a
 * response is continued by the id that the caller has.
 */
import type { JsonObject, ParsedObject } from '../../../json/json-scan.ts';
import { jsonObjects, parsedJsonObject } from '../../../json/json-text.ts';
import { readUsage } from '../../../engines/usage.ts';
import { mostBytes, outputBytes } from '../../wire/chat-choice.ts';
import type { ChatResponse, ResponseEnd, ResponseFrame } from '../../wire/chat-response.ts';
import type { EngineStream, PassOptions, PassThrough } from '../upstream.ts';
import { isAboutReasoning } from './chat-to-responses.ts';
import { type PassedItems, passedRequest } from './passed-request.ts';
import { cutItems, itemsTally, type PassedFrame, shownResponse } from './passed-response.ts';
import { type FinishedResponse, PassedStream, type ResponseError } from './passed-stream.ts';
import { finishOf } from './responses-to-chat.ts';

interface ResponsePassOptions {
  readonly source: ParsedObject;
  readonly items: PassedItems;
  /** Every member of a response, for those that the engine omits. */
  readonly defaults: JsonObject;
  readonly requestId: string;
  readonly serviceName: string;
  /** Whether a response can be stored; `undefined` if it is not to be. */
  readonly fits: ((responseJson: string) => boolean) | undefined;
}

export class ResponsePass implements PassThrough {
  readonly upstream = 'responses';
  readonly headers = [];
  readonly body: JsonObject;
  /** Set once a response has been passed on, for the store. */
  finished: FinishedResponse | undefined;
  readonly #options: ResponsePassOptions;
  #stream: PassedStream | undefined;

  constructor(options: ResponsePassOptions) {
    this.#options = options;
    this.body = options.source.body;
  }

  writeRequest({ refusal, ...target }: PassOptions): Buffer | undefined {
    if (refusal !== undefined && !isAboutReasoning(refusal.body)) return undefined;
    const { source, items, serviceName } = this.#options;
    const hasReasoning = refusal === undefined;
    return passedRequest(source, items, { ...target, serviceName, hasReasoning });
  }

  readResponse(bytes: Buffer, outputTokens: number): ChatResponse | undefined {
    const body = parsedJsonObject(bytes.toString()) ?? {};
    const finish = finishOf(body);
    if (!Array.isArray(body['output']) || finish === undefined || finish === 'error') {
      return undefined;
    }
    const output = jsonObjects(body['output']);
    const most = mostBytes(outputTokens, 0);
    const whole = itemsTally(output);
    const isCut = outputBytes(whole) > most;
    const items = isCut ? cutItems(output, most) : output;
    const tally = isCut ? itemsTally(items) : whole;
    const usage = readUsage(body['usage']);
    const atBytes = outputBytes(tally);
    const reported = usage && { usage, atBytes, tier: body['service_tier'] };
    const source = isCut ? cutSource(body, items) : { bytes, body };
    return { source, choices: [], reported, tally };
  }

  writeResponse({ source }: ChatResponse, frame: ResponseFrame, end: ResponseEnd): Buffer {
    const shown = shownResponse(source.bytes, this.#frameOf(frame), end);
    this.finished = { responseJson: shown.toString(), status: String(source.body['status']) };
    return shown;
  }

  newStream(outputTokens: number, frame: ResponseFrame): EngineStream {
    this.#stream = new PassedStream(this.#frameOf(frame), outputTokens, (finished) => {
      this.finished = finished;
    });
    return this.#stream;
  }

  /** The last event of a stream that was passed on; `undefined` if none was. */
  failed(error: ResponseError, end: ResponseEnd | undefined): string | undefined {
    return this.#stream?.failed(error, end);
  }

  #frameOf({ model }: ResponseFrame): PassedFrame {
    const { defaults, requestId, serviceName, fits } = this.#options;
    return { defaults, requestId, model, serviceName, fits };
  }
}

function cutSource(given: JsonObject, output: readonly JsonObject[]): ChatResponse['source'] {
  const incomplete_details = { reason: 'max_output_tokens' };
  const body = { ...given, status: 'incomplete', incomplete_details, output };
  return { bytes: Buffer.from(JSON.stringify(body)), body };
}
