/**
 * Rights of the members of an account by role, and the right that each route needs. An API key or a
 * wallet has all rights of its own kind; these rules apply to sessions of members only.
 */
import type { MemberRole } from '../config/config.ts';
import { Fault } from '../core/faults.ts';
import type { Caller } from '../identity/identity.ts';
import type { Route } from './route.ts';

/**
 * `use`: requests to models, files, batches. `develop`: keys and webhooks. `billing`: statement, credit,
 * budgets. `own`: members, and for the operator's account the service.
 */
export const MEMBER_RIGHTS = ['use', 'develop', 'billing', 'own'] as const;
export type MemberRight = (typeof MEMBER_RIGHTS)[number];

const RIGHTS: Readonly<Record<MemberRole, readonly MemberRight[]>> = {
  owner: MEMBER_RIGHTS,
  billing: ['billing'],
  developer: ['use', 'develop'],
  viewer: [],
};

type Rule = readonly [path: RegExp, read: MemberRight | 'any', write: MemberRight | 'any'];

/** The first rule that fits the path of a route applies; the last one fits every path. */
const RULES: readonly Rule[] = [
  [/^\/console\//, 'any', 'any'],
  [/^\/members/, 'any', 'own'],
  [/^\/(?:api_keys|key$|key\/)/, 'any', 'develop'],
  [/^\/webhooks/, 'develop', 'develop'],
  [/^\/billing\/balance$/, 'any', 'billing'],
  [/^\/billing\//, 'billing', 'billing'],
  [/^\/budgets/, 'any', 'billing'],
  [/^\/(?:files|batches|responses|video)/, 'use', 'use'],
  [/^\/admin\/accounts\/:id\/(?:credit|debit|refund)$/, 'any', 'billing'],
  [/^\/admin\//, 'any', 'own'],
  [/^/, 'any', 'use'],
];

/** The rights of a caller, for pages that show only what it may do. */
export function rightsOf({ kind, keyKind, member }: Caller): readonly MemberRight[] {
  if (member !== undefined) return RIGHTS[member.role];
  return kind === 'key' && keyKind === 'INFERENCE' ? ['use'] : MEMBER_RIGHTS;
}

/** Throws `MEMBER_ROLE_REQUIRED` if the caller is a member whose role does not allow the route. */
export function requireRight(caller: Caller, { auth, method, path }: Route): void {
  const { member } = caller;
  if (member === undefined || auth === 'public') return;
  const [, read, write] = RULES.find(([beginning]) => beginning.test(path)) ?? [path, 'own', 'own'];
  const right = method === 'GET' ? read : write;
  if (right === 'any' || RIGHTS[member.role].includes(right)) return;
  throw new Fault('MEMBER_ROLE_REQUIRED', {
    message: `The role ${member.role} does not allow this request; it needs the role ${rolesWith(right)}`,
  });
}

function rolesWith(right: MemberRight): string {
  const roles = Object.entries(RIGHTS).filter(([, rights]) => rights.includes(right));
  return roles.map(([role]) => role).join(' or ');
}
