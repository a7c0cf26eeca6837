/** `/members`: the people of an account with their roles, and invitations by link. */
import { isoTime } from '../core/clock.ts';
import { Fault } from '../core/faults.ts';
import { readBody } from '../http/read-request.ts';
import type { RequestContext } from '../http/request-context.ts';
import { type Route, get, patch, post, remove } from '../http/route.ts';
import type { Invitation, Member } from '../identity/identity.ts';
import type { AccountParts } from './account-parts.ts';
import {
  ACCOUNT_INVITE,
  ACCOUNT_MEMBERS,
  type CreatedInvitation,
  INVITE,
  type InvitationItem,
  InviteRequest,
  LIST_INVITATIONS,
  LIST_MEMBERS,
  type MemberItem,
  REMOVE_MEMBER,
  UPDATE_MEMBER,
  UpdateMemberRequest,
  WITHDRAW,
} from './members-schema.ts';
import { accountOf } from './operator/operator-accounts.ts';

const PATH = '/members';
const OPERATOR_PATH = '/admin/accounts/:id';

export function memberRoutes(parts: AccountParts): Route[] {
  const { identity } = parts.stores;
  const { members } = identity;
  const idOf = ({ parameters }: RequestContext): string => parameters['id'] ?? '';
  return [
    get(PATH, 'admin', LIST_MEMBERS, (context) => list(parts, context, context.caller.accountId)),
    patch(`${PATH}/:id`, 'admin', UPDATE_MEMBER, async (context) => {
      const { role } = readBody(context, UpdateMemberRequest);
      const member = await members.setRole(context.caller.accountId, idOf(context), role);
      await context.json(200, { data: itemOf(member) });
    }),
    remove(`${PATH}/:id`, 'admin', REMOVE_MEMBER, async (context) => {
      await members.remove(context.caller.accountId, idOf(context));
      await context.json(200, { success: true });
    }),
    get(`${PATH}/invitations`, 'admin', LIST_INVITATIONS, async (context) => {
      const open = await members.invitations(context.caller.accountId);
      await context.json(200, { object: 'list', data: open.map(invitationItem) });
    }),
    post(`${PATH}/invitations`, 'admin', INVITE, async (context) => {
      const { accountId, wallet } = context.caller;
      if (wallet !== undefined) await identity.openWalletAccount(wallet);
      await invite(parts, context, accountId);
    }),
    remove(`${PATH}/invitations/:id`, 'admin', WITHDRAW, async (context) => {
      await members.withdraw(context.caller.accountId, idOf(context));
      await context.json(200, { success: true });
    }),
    get(`${OPERATOR_PATH}/members`, 'operator', ACCOUNT_MEMBERS, async (context) =>
      list(parts, context, (await accountOf(parts, context)).id),
    ),
    post(`${OPERATOR_PATH}/invitations`, 'operator', ACCOUNT_INVITE, async (context) =>
      invite(parts, context, (await accountOf(parts, context)).id),
    ),
  ];
}

async function list(
  { stores }: AccountParts,
  context: RequestContext,
  accountId: string,
): Promise<void> {
  const members = await stores.identity.members.list(accountId);
  await context.json(200, { object: 'list', data: members.map(itemOf) });
}

/** Creates an invitation and returns its link. Throws 400 without a provider to sign in at. */
async function invite(
  { stores, config, mail }: AccountParts,
  context: RequestContext,
  accountId: string,
): Promise<void> {
  const { role, email } = readBody(context, InviteRequest);
  const { signIn, publicUrl } = config.current;
  if (signIn.providers.length === 0) {
    throw new Fault('INVALID_REQUEST', {
      message:
        'Members sign in at a provider, and the server has none; the operator adds one to "signIn.providers" of the configuration',
    });
  }
  const wanted = { accountId, role, email: email ?? '', createdBy: context.caller.keyId };
  const { invitation, secret } = await stores.identity.members.invite(
    wanted,
    signIn.invitationDays,
  );
  const url = `${publicUrl}/console/join#${secret}`;
  const item = invitationItem(invitation);
  if (item.email !== null && mail !== undefined) {
    const account = await stores.identity.findAccount(accountId);
    const data = { account: account?.name ?? accountId, role, url, expiresAt: item.expiresAt };
    const message = { address: item.email, accountId, subject: item.id, data };
    await mail({ ...message, event: 'member.invited' });
  }
  const body: CreatedInvitation = {
    data: { ...item, url, emailed: item.email !== null && mail !== undefined },
  };
  context.set('cache-control', 'no-store');
  await context.json(200, body);
}

function itemOf(member: Member): MemberItem {
  const { id, email, name, role, source, keyId, createdMs, lastSignInMs } = member;
  const times = { createdAt: isoTime(createdMs), lastSignInAt: isoTime(lastSignInMs) };
  return { id, email, name, role, source, keyId, ...times };
}

function invitationItem({ id, role, email, createdMs, expiresMs }: Invitation): InvitationItem {
  const times = { createdAt: isoTime(createdMs), expiresAt: isoTime(expiresMs) };
  return { id, role, email: email === '' ? null : email, ...times };
}
