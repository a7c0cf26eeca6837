/**
 * What a model cannot do is refused before inference: 400 with the reasons in `issues[]`.
 * Also keeps, for a model that takes one image, only the last message that bears one.
 *
 * The order of the reasons is the order of the checks below; all that apply are named.
 */
import type { ChatRequest } from './chat-request.ts';
import type { ChatMessage } from './chat-schema.ts';
import { measurePrompt } from './prompt-facts.ts';
import { refuseIssues, type FlatIssue } from '../../json/validation.ts';

/** What a chat model can do, as far as a request can ask for it. */
export interface ChatAbilities {
  readonly vision: boolean;
  readonly multipleImages: boolean;
  /** Per request; absent means no bound of the model's own. */
  readonly maxImages?: number;
  readonly audioInput: boolean;
  readonly videoInput: boolean;
  readonly maxVideos?: number;
  readonly functionCalling: boolean;
  readonly responseSchema: boolean;
  readonly logProbs: boolean;
  readonly reasoning: boolean;
  readonly reasoningEffort: boolean;
  /** The efforts that the engine knows; absent means that every effort is passed on. */
  readonly reasoningEffortOptions?: readonly string[];
  readonly webSearch: boolean;
  readonly xSearch: boolean;
  readonly maxCompletionTokens: number;
}

/** Videos of one request: decisions, section 7. */
export const MAX_VIDEOS_PER_REQUEST = 3;

/**
 * Refuses what the model cannot do (400 `INVALID_REQUEST`), and gives back the request as the
 * model takes it: the same object unless images of earlier messages had to go.
 */
export function applyAbilities(
  request: ChatRequest,
  modelId: string,
  abilities: ChatAbilities,
): ChatRequest {
  const fitted = abilities.vision && !abilities.multipleImages ? keepLastImages(request) : request;
  const issues = [
    ...mediaIssues(fitted, modelId, abilities),
    ...featureIssues(fitted, modelId, abilities),
    ...searchIssues(fitted, modelId, abilities),
    ...capIssues(fitted, modelId, abilities),
  ];
  if (issues.length > 0) throw refuseIssues(issues);
  return fitted;
}

const UNSUPPORTED = 'unsupported_feature';

function unsupported(path: readonly string[], modelId: string, what: string): FlatIssue {
  return { code: UNSUPPORTED, path, message: `The model ${modelId} does not take ${what}` };
}

function tooMany(modelId: string, what: string, cap: number, count: number): FlatIssue {
  const message = `The model ${modelId} takes at most ${cap} ${what} per request, got ${count}`;
  return { code: 'too_big', path: ['messages'], message };
}

function mediaIssues(request: ChatRequest, modelId: string, can: ChatAbilities): FlatIssue[] {
  const issues: FlatIssue[] = [];
  const { imageCount, audioCount, videoCount } = request.facts;
  if (imageCount > 0) {
    const cap = can.maxImages ?? (can.multipleImages ? Infinity : 1);
    if (!can.vision) issues.push(unsupported(['messages'], modelId, 'images'));
    else if (imageCount > cap) issues.push(tooMany(modelId, 'images', cap, imageCount));
  }
  if (audioCount > 0 && !can.audioInput) {
    issues.push(unsupported(['messages'], modelId, 'audio input'));
  }
  if (videoCount > 0) {
    const cap = Math.min(can.maxVideos ?? MAX_VIDEOS_PER_REQUEST, MAX_VIDEOS_PER_REQUEST);
    if (!can.videoInput) issues.push(unsupported(['messages'], modelId, 'video input'));
    else if (videoCount > cap) issues.push(tooMany(modelId, 'videos', cap, videoCount));
  }
  return issues;
}

function featureIssues(request: ChatRequest, modelId: string, can: ChatAbilities): FlatIssue[] {
  const issues: FlatIssue[] = [];
  if (request.tools.length > 0 && !can.functionCalling) {
    issues.push(unsupported(['tools'], modelId, 'tools'));
  }
  const format = request.responseFormat?.type ?? 'text';
  if (format !== 'text' && !can.responseSchema) {
    issues.push(unsupported(['response_format'], modelId, `the response format ${format}`));
  }
  if (request.logprobs && !can.logProbs) {
    issues.push(unsupported(['logprobs'], modelId, 'logprobs'));
  }
  return issues;
}

/** `auto` leaves the search to our discretion, so only an outright `on` is refused. */
function searchIssues(request: ChatRequest, modelId: string, can: ChatAbilities): FlatIssue[] {
  const issues: FlatIssue[] = [];
  const { enable_web_search: search, enable_x_search: social } = request.parameters;
  if (search === 'on' && !can.webSearch) {
    issues.push(
      unsupported(['svc_parameters', 'enable_web_search'], modelId, 'web search; use off or auto'),
    );
  }
  if (social && !can.xSearch) {
    issues.push(unsupported(['svc_parameters', 'enable_x_search'], modelId, 'social search'));
  }
  return issues;
}

function capIssues(request: ChatRequest, modelId: string, can: ChatAbilities): FlatIssue[] {
  const asked = request.maxOutputTokens;
  if (asked === undefined || asked <= can.maxCompletionTokens) return [];
  const field = Object.hasOwn(request.fields, 'max_completion_tokens')
    ? 'max_completion_tokens'
    : 'max_tokens';
  const message = `${asked} is above the ${can.maxCompletionTokens} output tokens of ${modelId}`;
  return [{ code: 'too_big', path: [field], message }];
}

/** Images of every message but the last that bears one give way to a short note. */
function keepLastImages(request: ChatRequest): ChatRequest {
  if (request.facts.imageMessageCount < 2) return request;
  const last = request.messages.findLastIndex(bearsImage);
  const messages = request.messages.map((message, index) =>
    index === last ? message : withoutImages(message),
  );
  const fields = { ...request.fields, messages };
  const facts = measurePrompt(messages, fields);
  return { ...request, messages, facts, fields, changed: true };
}

function bearsImage(message: ChatMessage): boolean {
  const { content } = message;
  return Array.isArray(content) && content.some((part) => part.type === 'image_url');
}

function withoutImages(message: ChatMessage): ChatMessage {
  if (message.role !== 'user' || typeof message.content === 'string') return message;
  const kept = message.content.filter((part) => part.type !== 'image_url');
  if (kept.length === message.content.length) return message;
  // An emptied message stays, because chat templates want the roles to alternate.
  const content = kept.length > 0 ? kept : [{ type: 'text' as const, text: '[image omitted]' }];
  return { ...message, content };
}
