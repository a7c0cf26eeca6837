/** The members page: people of the account with their roles, and invitations by link. */
import { useSignal } from '@preact/signals';
import { call } from '../api.ts';
import { toast, toastError } from '../parts/announce.tsx';
import { Confirm } from '../parts/confirm.tsx';
import { ActionForm, Select, TextField, useForm } from '../parts/form.tsx';
import { Empty } from '../parts/loaded.tsx';
import { DialogButton, Overlay } from '../parts/overlay.tsx';
import { PageHead } from '../parts/page-head.tsx';
import { ShownOnce } from '../parts/shown-once.tsx';
import { type Column, LoadedTable } from '../parts/table.tsx';
import { State, Time } from '../parts/values.tsx';
import { type Resource, useCall } from '../resource.ts';
import { can, isOperator, providers, session } from '../session.ts';
import type { List, Member, OpenInvitation } from '../shapes.ts';
import { ROLE_CHOICES } from './roles.ts';

export function Members() {
  const members = useCall<List<Member>>('/members');
  const invitations = useCall<List<OpenInvitation>>('/members/invitations');
  const invitedUrl = useSignal<string | undefined>(undefined);
  const canInvite = can('own') && providers.value.length > 0;
  return (
    <>
      <PageHead title="Members" lead="People who sign in to this account, and their roles.">
        {canInvite && (
          <DialogButton label="Invite a member" class="primary">
            {(close) => (
              <Overlay title="Invite a member" close={close}>
                <InviteForm
                  invited={(url) => {
                    close();
                    invitedUrl.value = url;
                    invitations.reload();
                  }}
                />
              </Overlay>
            )}
          </DialogButton>
        )}
      </PageHead>
      {can('own') && providers.value.length === 0 && (
        <p class="notice">
          Members sign in at an OpenID Connect provider. The operator of the server adds one in the
          section <code>signIn</code> of the{' '}
          {isOperator.value ? (
            <a href="/console/operator/configuration">configuration</a>
          ) : (
            'configuration'
          )}
          .
        </p>
      )}
      <LoadedTable
        label="Members"
        from={members}
        empty={
          <Empty title="No members yet">
            <p>Only API keys and wallets sign in to this account.</p>
          </Empty>
        }
        columns={memberColumns(members)}
        keyOf={({ id }) => id}
      />
      {(invitations.data?.data.length ?? 0) > 0 && <Invitations list={invitations} />}
      {invitedUrl.value !== undefined && (
        <ShownOnce
          title="The invitation was created"
          secret={invitedUrl.value}
          close={() => (invitedUrl.value = undefined)}
          about="Send this link to the person. It is valid once, and the server cannot show it again."
        />
      )}
    </>
  );
}

function memberColumns(members: Resource<List<Member>>): readonly Column<Member>[] {
  const columns: readonly Column<Member>[] = [
    {
      name: 'Member',
      show: ({ id, email, name }) => (
        <>
          <strong class="text">{email}</strong>{' '}
          {id === session.value?.member?.id && <State value="you" tone="good" />}
          {name !== '' && <span class="under text">{name}</span>}
        </>
      ),
    },
    {
      name: 'Role',
      show: (member) =>
        can('own') ? <RoleChoice member={member} changed={members.reload} /> : member.role,
    },
    {
      name: 'Joined by',
      kind: 'wide',
      show: ({ source, createdAt }) => (
        <span class="soft">
          {source}, <Time iso={createdAt} ago />
        </span>
      ),
    },
    {
      name: 'Last sign-in',
      kind: 'wide',
      show: ({ lastSignInAt }) => <Time iso={lastSignInAt} ago />,
    },
  ];
  if (!can('own')) return columns;
  return [
    ...columns,
    {
      name: 'Action',
      kind: 'figure',
      show: (member) => (
        <span class="row end">
          <DialogButton label="Remove" class="small danger">
            {(close) => (
              <Confirm
                title="Remove the member"
                label="Remove"
                notice="The member was removed"
                close={close}
                run={() => call(`/members/${member.id}`, { method: 'DELETE' })}
                done={() => {
                  close();
                  members.reload();
                }}
              >
                <p>
                  <strong class="text">{member.email}</strong> is signed out and cannot enter this
                  account again. API keys that the member has created stay valid.
                </p>
              </Confirm>
            )}
          </DialogButton>
        </span>
      ),
    },
  ];
}

function RoleChoice({ member, changed }: { member: Member; changed: () => void }) {
  const change = async (role: string): Promise<void> => {
    try {
      await call(`/members/${member.id}`, { method: 'PATCH', body: { role } });
      toast(`${member.email} has the role ${role}`);
    } catch (error) {
      toastError(error);
    }
    changed();
  };
  return (
    <select
      aria-label={`Role of ${member.email}`}
      value={member.role}
      onChange={(event) => void change(event.currentTarget.value)}
    >
      {ROLE_CHOICES.map(([role]) => (
        <option key={role} value={role}>
          {role}
        </option>
      ))}
    </select>
  );
}

function Invitations({ list }: { list: Resource<List<OpenInvitation>> }) {
  const withdraw = async ({ id }: OpenInvitation): Promise<void> => {
    try {
      await call(`/members/invitations/${id}`, { method: 'DELETE' });
      toast('The invitation was deleted');
    } catch (error) {
      toastError(error);
    }
    list.reload();
  };
  const columns: readonly Column<OpenInvitation>[] = [
    { name: 'For', show: ({ email }) => <span class="text">{email ?? 'any person'}</span> },
    { name: 'Role', show: ({ role }) => role },
    { name: 'Expires', kind: 'wide', show: ({ expiresAt }) => <Time iso={expiresAt} ago /> },
    {
      name: 'Action',
      kind: 'figure',
      show: (invitation) =>
        can('own') && (
          <span class="row end">
            <button type="button" class="small" onClick={() => void withdraw(invitation)}>
              Delete
            </button>
          </span>
        ),
    },
  ];
  return (
    <section>
      <h2>Open invitations</h2>
      <LoadedTable
        label="Open invitations"
        from={list}
        empty={null}
        columns={columns}
        keyOf={({ id }) => id}
      />
    </section>
  );
}

function InviteForm({ invited }: { invited: (url: string) => void }) {
  const { action, values, field } = useForm({ role: 'developer', email: '' });
  const submit = (): void => {
    const email = values.email.trim();
    const body = { role: values.role, email: email === '' ? null : email };
    void action.run(async () => {
      const path = '/members/invitations';
      const { data } = await call<{ data: { url: string } }>(path, { method: 'POST', body });
      invited(data.url);
    });
  };
  return (
    <ActionForm action={action} submit={submit} label="Create the link">
      <Select {...field('role')} label="Role" options={ROLE_CHOICES} />
      <TextField
        {...field('email')}
        label="Email address"
        hint="Only a person with this address can accept. Leave empty for any person with the link."
      />
    </ActionForm>
  );
}
