"""Which of the six types of action a call of a tool is, for the benchmarks whose artifacts are tools.

Context
-------
The paper's protocol has actions of a code editor (edit, create, delete, run_test, read, configure) and uses them for
tools as well: in the rows of its companion that were looked at, every call of a tool is ``run_test``, and the receiver is
told so. The action then cannot be wrong but by a slip of format.

Here a call is of the type that says what it does to what is stored, by a table made from the tools' own descriptions.
`LEGEND` explains all six types to every agent and names none for a tool. A tool that two types fit is right with either.

How to read the result
----------------------
The type follows from the tool. A right artifact with a wrong action is thus a failure to turn knowledge into a
well-formed action (closure), not a lack of knowledge.

Not covered: what a call does to a state (no tool runs here).
"""

from __future__ import annotations

from lib.tasks.task import WorkloadError

LEGEND = (
    "read: look something up and change nothing. create: add a record, or send or post something. edit: change a record. "
    "delete: remove or cancel a record. configure: set a mode, a device, a login or the place of work. "
    "run_test: compute, convert, compare or verify something."
)
"""What each action means where artifacts are tools; part of every local view of these families."""


def actions_of(tool: str, table: dict[str, str], family: str) -> tuple[str, ...]:
    """Return the acceptable actions of a tool.

    Raises
    ------
    WorkloadError
        If the table does not know the tool: the data are newer than the table.
    """
    if tool not in table:
        raise WorkloadError(f"{family}: tool {tool!r} has no action type; add it to lib/tasks/tool_actions.py")
    return tuple(table[tool].split("|"))


def _table(**tools: str) -> dict[str, str]:
    return {tool: action for action, names in tools.items() for tool in names.split()}


TAU_AIRLINE = _table(
    read="get_reservation_details get_user_details list_all_airports search_direct_flight search_onestop_flight",
    create="book_reservation send_certificate",
    edit="update_reservation_baggages update_reservation_flights update_reservation_passengers",
    delete="cancel_reservation",
    run_test="calculate think",
) | {"get_flight_status": "read", "transfer_to_human_agents": "create|configure"}

TAU_RETAIL = _table(
    read="find_user_id_by_email find_user_id_by_name_zip get_order_details get_product_details get_user_details "
    "list_all_product_types",
    edit="modify_pending_order_address modify_pending_order_items modify_pending_order_payment modify_user_address",
    delete="cancel_pending_order",
    run_test="calculate think",
) | {
    "exchange_delivered_order_items": "edit|create",
    "return_delivered_order_items": "edit|create",
    "transfer_to_human_agents": "create|configure",
}

TOOLSANDBOX = _table(
    read="get_cellular_service_status get_current_location get_current_timestamp get_location_service_status "
    "get_low_battery_mode_status get_wifi_status search_contacts search_holiday search_lat_lon "
    "search_location_around_lat_lon search_messages search_reminder search_stock search_weather_around_lat_lon",
    create="add_contact add_reminder send_message_with_phone_number",
    edit="modify_contact modify_reminder",
    delete="remove_contact remove_reminder",
    configure="set_cellular_service_status set_location_service_status set_low_battery_mode_status set_wifi_status",
    run_test="calculate_lat_lon_distance convert_currency datetime_info_to_timestamp shift_timestamp timestamp_diff "
    "timestamp_to_datetime_info unit_conversion",
) | {"end_conversation": "configure"}

# The classes of BFCL's multi-turn tasks, by the file that documents them.
BFCL_CLASSES = {
    "gorilla_file_system": _table(
        read="cat find grep ls pwd tail", create="mkdir touch", edit="mv", delete="rm rmdir", configure="cd"
    )
    | {"cp": "create", "diff": "run_test|read", "du": "read|run_test", "echo": "create|edit|read"}
    | {"sort": "read|run_test|edit", "wc": "read|run_test"},
    "math_api": _table(
        run_test="absolute_value add divide imperial_si_conversion logarithm max_value mean min_value multiply percentage "
        "power round_number si_unit_conversion square_root standard_deviation subtract sum_values"
    ),
    "message_api": _table(
        read="get_message_stats get_user_id list_users message_get_login_status search_messages view_messages_sent",
        create="add_contact send_message",
        delete="delete_message",
        configure="message_login",
    ),
    "posting_api": _table(
        read="get_tweet get_tweet_comments get_user_stats get_user_tweets list_all_following posting_get_login_status "
        "search_tweets",
        create="comment post_tweet retweet",
        configure="authenticate_twitter",
    )
    | {"follow_user": "create|edit", "mention": "create|edit", "unfollow_user": "delete|edit"},
    "ticket_api": _table(
        read="get_ticket get_user_tickets ticket_get_login_status",
        create="create_ticket",
        edit="edit_ticket resolve_ticket",
        configure="logout ticket_login",
    )
    | {"close_ticket": "edit|delete"},
    "trading_bot": _table(
        read="filter_stocks_by_price get_account_info get_available_stocks get_current_time get_order_details "
        "get_order_history get_stock_info get_symbol_by_name get_transaction_history get_watchlist "
        "trading_get_login_status",
        create="place_order",
        delete="cancel_order",
        configure="trading_login trading_logout",
    )
    | {"add_to_watchlist": "create|edit", "remove_stock_from_watchlist": "delete|edit"}
    | {
        "fund_account": "edit|create",
        "withdraw_funds": "edit|create",
        "notify_price_change": "run_test|read|configure",
    },
    "travel_booking": _table(
        read="get_all_credit_cards get_booking_history get_budget_fiscal_year get_credit_card_balance get_flight_cost "
        "get_nearest_airport_by_city list_all_airports retrieve_invoice travel_get_login_status",
        create="book_flight contact_customer_support purchase_insurance register_credit_card",
        delete="cancel_booking",
        configure="authenticate_travel",
        run_test="compute_exchange_rate verify_traveler_information",
    )
    | {"set_budget_limit": "configure|edit"},
    "vehicle_control": _table(
        read="displayCarStatus display_log find_nearest_tire_shop get_current_speed get_outside_temperature_from_google "
        "get_outside_temperature_from_weather_com get_zipcode_based_on_city",
        configure="activateParkingBrake adjustClimateControl lockDoors pressBrakePedal releaseBrakePedal setCruiseControl "
        "setHeadlights set_navigation startEngine",
        run_test="estimate_drive_feasibility_by_mileage gallon_to_liter liter_to_gallon",
    )
    | {"check_tire_pressure": "read|run_test", "estimate_distance": "run_test|read", "fillFuelTank": "configure|edit"},
}
