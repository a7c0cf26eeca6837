/**
 * Sends messages of the queue by e-mail. A recipient of an account is a webhook with a `mailto:` URL; the
 * others are an invitation and the alerts for operators.
 *
 * Subjects contain only fixed words, numbers and the title of the service, and addresses have no line
 * breaks, so that no text of a caller gets into a header.
 */
import { createHash, timingSafeEqual } from 'node:crypto';
import type { createTransport } from 'nodemailer';
import type { Config } from '../config/config.ts';
import { DAY_MS, type Clock, SECOND_MS } from '../core/clock.ts';
import { ADDRESS } from '../core/email-address.ts';
import { onDemand } from '../core/on-demand.ts';
import { escapeHtml } from '../http/escape-html.ts';
import type { Delivery, Webhook } from './webhook.ts';

export const MAILTO = 'mailto:';
const TIMEOUT_MS = 20 * SECOND_MS;
/** Connections to the mail server, which other messages wait for. */
const MAX_CONNECTIONS = 2;
/** Accounts and addresses whose messages are counted. */
const MAX_COUNTS = 20_000;
const FIRST_PERMANENT = 500;

export interface MailerParts {
  readonly settings: NonNullable<Config['email']>;
  readonly title: string;
  readonly publicUrl: string;
  readonly basePath: string;
  readonly clock: Clock;
}

interface Outcome {
  readonly status: number | undefined;
  /** `undefined` after success. */
  readonly problem: string | undefined;
  /** The server will never accept the message. */
  readonly isFinal?: boolean;
}

type Transport = ReturnType<typeof createTransport>;

export function mailAddress(url: string): string | undefined {
  if (!url.startsWith(MAILTO)) return undefined;
  const address = url.slice(MAILTO.length);
  return ADDRESS.test(address) ? address : undefined;
}

export class Mailer {
  readonly #parts: MailerParts;
  readonly #counts = new Map<string, { readonly day: number; readonly count: number }>();
  readonly #transport: () => Promise<Transport>;
  #opened: Transport | undefined;

  constructor(parts: MailerParts) {
    this.#parts = parts;
    // The package is loaded with the first message.
    this.#transport = onDemand(async () => {
      const { createTransport } = await import('nodemailer');
      const { host, port, tls, user, password = '' } = parts.settings;
      this.#opened = createTransport({
        pool: true,
        maxConnections: MAX_CONNECTIONS,
        host,
        port,
        secure: tls === 'implicit',
        requireTLS: tls === 'starttls',
        ignoreTLS: tls === 'none',
        ...(user === undefined ? {} : { auth: { user, pass: password } }),
        connectionTimeout: TIMEOUT_MS,
        greetingTimeout: TIMEOUT_MS,
        socketTimeout: TIMEOUT_MS,
        disableFileAccess: true,
        disableUrlAccess: true,
      });
      return this.#opened;
    });
  }

  /** Sends one message. Never rejects. `webhook`: the recipient of an account, which can unsubscribe. */
  async send(to: string, delivery: Delivery, webhook: Webhook | undefined): Promise<Outcome> {
    const { settings, title, publicUrl, basePath } = this.#parts;
    const exceeded = delivery.event === 'backup.failed' ? undefined : this.#exceeded(delivery, to);
    if (exceeded !== undefined) {
      const problem = `An ${exceeded} gets at most ${settings.perAccountPerDay} e-mails per day`;
      return { status: undefined, problem };
    }
    const { subject, lines } = contentOf(delivery, title, publicUrl);
    const stop = webhook === undefined ? undefined : unsubscribeUrl(publicUrl + basePath, webhook);
    const ending = stop === undefined ? [] : [`Stop these messages: ${stop}`];
    const all = [...lines, ...ending];
    try {
      const transport = await this.#transport();
      const sent = await transport.sendMail({
        from: { name: oneLine(title), address: settings.from },
        to: { name: '', address: to },
        subject: oneLine(subject),
        text: `${all.join('\n\n')}\n`,
        html: `<!doctype html><html lang="en"><body>${all.map(paragraph).join('')}</body></html>`,
        // The same in a repeated attempt, so that the receiving server can drop the second one.
        messageId: `<${delivery.id}@${settings.from.split('@')[1] ?? 'localhost'}>`,
        headers: {
          'Auto-Submitted': 'auto-generated',
          ...(stop === undefined
            ? {}
            : {
                'List-Unsubscribe': `<${stop}>`,
                'List-Unsubscribe-Post': 'List-Unsubscribe=One-Click',
              }),
        },
      });
      return {
        status: Number.parseInt(String(sent.response), 10) || undefined,
        problem: undefined,
      };
    } catch (error) {
      return failureOf(error);
    }
  }

  close(): void {
    this.#opened?.close();
  }

  /**
   * Counts a message, unless its account or its address has the maximum of the day. Several accounts must not
   * flood an address, since accounts of wallets are free.
   */
  #exceeded({ accountId }: Delivery, to: string): 'account' | 'address' | undefined {
    const { perAccountPerDay } = this.#parts.settings;
    const day = Math.floor(this.#parts.clock.nowMs() / DAY_MS);
    // Addresses with a tag, such as `name+tag@example.com`, belong to one person.
    const address = to.toLowerCase().replace(/\+[^@]*/, '');
    if (this.#countOf(accountId, day) >= perAccountPerDay) return 'account';
    if (this.#countOf(address, day) >= perAccountPerDay) return 'address';
    this.#count(accountId, day);
    this.#count(address, day);
    return undefined;
  }

  #countOf(name: string, day: number): number {
    const known = this.#counts.get(name);
    return known?.day === day ? known.count : 0;
  }

  #count(name: string, day: number): void {
    const count = this.#countOf(name, day) + 1;
    this.#counts.delete(name);
    this.#counts.set(name, { day, count });
    const [oldest] = this.#counts.keys();
    if (this.#counts.size > MAX_COUNTS && oldest !== undefined) this.#counts.delete(oldest);
  }
}

/** The texts of the server stay out, because they can contain credentials. */
function failureOf(error: unknown): Outcome {
  const { code, responseCode } = error as { code?: unknown; responseCode?: unknown }; // nodemailer
  const status = typeof responseCode === 'number' ? responseCode : undefined;
  if (code === 'EENVELOPE' && status !== undefined && status >= FIRST_PERMANENT) {
    const problem = `The mail server rejected the recipient with status ${status}`;
    return { status, problem, isFinal: true };
  }
  if (status !== undefined) {
    return { status, problem: `The mail server responded with status ${status}` };
  }
  return { status: undefined, problem: 'The mail server did not respond' };
}

function unsubscribeUrl(apiUrl: string, webhook: Webhook): string {
  return `${apiUrl}/webhooks/${webhook.id}/unsubscribe?token=${unsubscribeToken(webhook)}`;
}

/** The secret of a webhook does not change the token of another one. */
export function unsubscribeToken({ id, secret, url }: Pick<Webhook, 'id' | 'secret' | 'url'>) {
  return createHash('sha256').update(`unsubscribe ${id} ${url} ${secret}`).digest('base64url');
}

export function isUnsubscribeToken(webhook: Webhook, token: string): boolean {
  const right = Buffer.from(unsubscribeToken(webhook));
  const given = Buffer.from(token);
  return right.length === given.length && timingSafeEqual(right, given);
}

type Data = Readonly<Record<string, string | number | null | undefined>>;

interface Content {
  readonly subject: string;
  readonly lines: readonly string[];
}

function contentOf(delivery: Delivery, title: string, publicUrl: string): Content {
  const { data } = JSON.parse(delivery.body) as { data: Data }; // by `deliveryOf`
  const text = (name: string): string => oneLine(String(data[name] ?? ''));
  const account = `Account: ${oneLine(delivery.accountId)}`;
  const credit = `Add credit: ${publicUrl}/console/credit`;
  switch (delivery.event) {
    case 'balance.low':
      return {
        subject: `${title}: the balance is below ${text('thresholdUsd')} USD`,
        lines: [`The balance is ${text('balanceUsd')} USD.`, account, credit],
      };
    case 'spend.daily':
      return {
        subject: `${title}: ${text('spentUsd')} USD were spent today`,
        lines: [
          `The account was charged ${text('spentUsd')} USD on ${text('date')} (UTC). The threshold is ${text('thresholdUsd')} USD.`,
          account,
        ],
      };
    case 'key.limit_reached':
      return {
        subject: `${title}: an API key has used ${text('usedPercent')}% of its limit`,
        lines: [`The API key "${text('description')}" (${text('apiKeyId')}).`, account],
      };
    case 'budget.limit_reached':
      return {
        subject: `${title}: ${text('usedPercent')}% of a budget is spent`,
        lines: [`Budget ${text('budgetId')} ${text('tag')} ${text('value')}`.trimEnd(), account],
      };
    case 'auto_top_up.failed':
      return {
        subject: `${title}: the automatic top-up failed`,
        lines: [
          `The saved card could not be charged ${text('amountUsd')} USD: ${text('reason')}`,
          data['nextTryAt'] === null
            ? 'The automatic top-up has stopped. Save another card, or change the settings.'
            : `The next attempt is at ${text('nextTryAt')}.`,
          account,
          credit,
        ],
      };
    case 'member.invited':
      return {
        subject: `${title}: an invitation to an account`,
        lines: [
          `You are invited to the account "${text('account')}" with the role ${text('role')}.`,
          `Accept the invitation: ${text('url')}`,
          `The link is valid until ${text('expiresAt')}. Ignore this message if you did not expect it.`,
        ],
      };
    case 'backup.failed':
      return {
        subject: `${title}: the scheduled backup failed`,
        lines: [
          `Reason: ${text('reason')}`,
          'The server tries again in an hour. The page Backups of the console lists the runs.',
        ],
      };
    default:
      return {
        subject: `${title}: test message`,
        lines: ['This is a test message of the notifications of your account.', account],
      };
  }
}

const MAX_TEXT_CHARS = 500;

/** Replaces control characters, such as line breaks, and limits the length. */
function oneLine(text: string): string {
  return text.replaceAll(/[\p{Cc}\u2028\u2029]+/gu, ' ').slice(0, MAX_TEXT_CHARS);
}

function paragraph(line: string): string {
  const link = /^(?<words>[\w ]{1,40}: )(?<url>https?:\/\/\S{1,400})$/.exec(line)?.groups;
  const { words = '', url = '' } = link ?? {};
  if (link === undefined) return `<p>${escapeHtml(line)}</p>`;
  return `<p>${escapeHtml(words)}<a href="${escapeHtml(url)}">${escapeHtml(url)}</a></p>`;
}
